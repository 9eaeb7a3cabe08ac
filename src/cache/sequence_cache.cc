#include "cache/sequence_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace drafthouse {

SequenceCache::SequenceCache(std::vector<LayerGroup> groups, std::uint32_t positions_max)
    : groups_(std::move(groups)),
      pages_(groups_.size()),
      tables_(groups_.size()),
      freed_(groups_.size(), 0),
      torn_(groups_.size(), kNone),
      positions_max_(positions_max) {
  // One page more than the positions fill: a failed extend() keeps what it took.
  const std::size_t pages = positions_max / kPageTokens + 2;
  for (std::size_t g = 0; positions_max != 0 && g < groups_.size(); ++g) {
    pages_[g].reserve(pages);
    tables_[g].reserve(pages);
  }
}

void SequenceCache::set_page(std::size_t group, std::size_t page, PageRef ref) {
  tables_[group][page] = ref.data();
  pages_[group][page] = std::move(ref);
}

Status SequenceCache::own_open_page(std::size_t group) {
  const std::uint32_t page = length_ / kPageTokens;
  const PageRef& open = pages_[group][page];
  if (open.unique()) return {};
  Result<PageRef> own = groups_[group].pool->take();
  if (!own.ok()) return own.status();
  const std::size_t bytes = groups_[group].pool->page_bytes();
  if (open) {
    std::memcpy(own.value().data(), open.data(), bytes);
  } else {
    // Only a draft's context lacks pages. What cannot be told apart from present positions inside a
    // page is at least always the same.
    std::memset(own.value().data(), 0, bytes);
    torn_[group] = page;
  }
  set_page(group, page, std::move(own).value());
  return {};
}

void SequenceCache::push_page(std::size_t group, PageRef ref) {
  tables_[group].push_back(ref.data());
  pages_[group].push_back(std::move(ref));
}

void SequenceCache::push_passing(std::size_t group, const PageRef& buffer) {
  tables_[group].push_back(buffer.data());
  pages_[group].emplace_back();
}

Status SequenceCache::take_pages(std::size_t group, std::size_t needed) {
  if (groups_[group].kind == GroupKind::ring && tables_[group].size() < needed) {
    // Inner pages are full, folded into a state and forgotten one after another within the pass.
    Result<PageRef> page = groups_[group].pool->take();
    if (!page.ok()) return page.status();
    while (tables_[group].size() + 1 < needed) push_passing(group, page.value());
    push_page(group, std::move(page).value());
    return {};
  }
  while (tables_[group].size() < needed) {
    Result<PageRef> page = groups_[group].pool->take();
    // Pages taken so far stay reserved past the length; they are used by the next extend().
    if (!page.ok()) return page.status();
    push_page(group, std::move(page).value());
  }
  return {};
}

Status SequenceCache::take_states(std::size_t group, std::size_t needed) {
  const std::size_t before = tables_[group].size();
  Status status = take_states(group, needed, true);
  if (status.ok()) return {};
  // Once more without checkpoints, where there were any.
  const std::size_t wanted = checkpoints_.size();
  std::erase_if(checkpoints_, [before](std::uint32_t page) { return page >= before; });
  if (checkpoints_.size() == wanted) return status;
  skipped_ += wanted - checkpoints_.size();
  tables_[group].resize(before);
  pages_[group].resize(before);
  passing_.clear();
  return take_states(group, needed, false);
}

Status SequenceCache::take_states(std::size_t group, std::size_t needed, bool checkpoints) {
  // A state is made from the one before it, so two buffers take turns.
  PageRef turns[2];
  for (std::size_t page = tables_[group].size(); page < needed; ++page) {
    if (checkpoints && wants_checkpoint(page)) {
      Result<PageRef> own = groups_[group].pool->take();
      if (own.ok()) {
        checkpoints_.push_back(static_cast<std::uint32_t>(page));
        push_page(group, std::move(own).value());
        continue;
      }
      ++skipped_;
    }
    std::swap(turns[0], turns[1]);
    if (!turns[0]) {
      Result<PageRef> buffer = groups_[group].pool->take();
      if (!buffer.ok()) return buffer.status();
      turns[0] = std::move(buffer).value();
      passing_.push_back(turns[0]);
    }
    if (page + 1 == needed) {
      push_page(group, turns[0]);
    } else {
      push_passing(group, turns[0]);
    }
  }
  return {};
}

Status SequenceCache::extend(std::uint32_t count) {
  assert(pending_ == 0);
  free_out_of_reach(true);
  const std::size_t end = std::size_t{length_} + count;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupKind kind = groups_[g].kind;
    Status status;
    if (kind != GroupKind::recurrent && count > 0 && length_ % kPageTokens != 0) {
      status = own_open_page(g);
    }
    if (status.ok()) {
      status = kind == GroupKind::recurrent ? take_states(g, pages_of(kind, end))
                                            : take_pages(g, pages_of(kind, end));
    }
    if (!status.ok()) {
      drop_passing();
      return status;
    }
  }
  pending_ = count;
  return {};
}

void SequenceCache::drop_passing() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == GroupKind::attention) continue;
    const std::size_t kept = pages_of(groups_[g].kind, length_);
    while (tables_[g].size() > kept) {
      tables_[g].pop_back();
      pages_[g].pop_back();
    }
    freed_[g] = std::min(freed_[g], static_cast<std::uint32_t>(tables_[g].size()));
  }
  while (!checkpoints_.empty() && checkpoints_.back() >= length_ / kPageTokens) {
    checkpoints_.pop_back();
  }
  passing_.clear();
}

void SequenceCache::commit(std::uint32_t accepted) {
  assert(accepted <= pending_);
  if (accepted > 0) rollback_ = pending_ <= kRollbackMax ? length_ : length_ + accepted;
  length_ += accepted;
  pending_ = 0;
  drop_passing();
  free_out_of_reach(false);
}

void SequenceCache::truncate(std::uint32_t length) {
  assert(length <= length_);
  length_ = length;
  pending_ = 0;
  rollback_ = std::min(rollback_, length);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind != GroupKind::attention) continue;
    assert(length == 0 || freed_[g] <= first_page_seen(length, groups_[g].reach));
    const std::size_t kept = pages_of(GroupKind::attention, length);
    while (tables_[g].size() > kept) {
      tables_[g].pop_back();
      pages_[g].pop_back();
    }
    freed_[g] = std::min(freed_[g], static_cast<std::uint32_t>(tables_[g].size()));
    if (torn_[g] >= kept) torn_[g] = kNone;
  }
  drop_passing();
}

void SequenceCache::adopt(std::uint32_t length, std::span<const std::vector<PageRef>> pages) {
  assert(length_ == 0 && pending_ == 0 && length % kPageTokens == 0);
  assert(pages.size() <= groups_.size());
  const std::size_t count = length / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    // A page reserved by a failed extend() may be there.
    tables_[g].assign(count, nullptr);
    pages_[g].assign(count, PageRef());
    for (std::size_t page = 0; g < pages.size() && page < pages[g].size(); ++page) {
      assert(page < count);
      assert(!pages[g][page] || pages[g][page].bytes() == groups_[g].pool->page_bytes());
      set_page(g, page, pages[g][page]);
    }
  }
  length_ = length;
  rollback_ = length;
  free_out_of_reach(true);
  free_out_of_reach(false);
}

PageRef SequenceCache::share(std::uint32_t group, std::uint32_t page) const {
  assert((std::size_t{page} + 1) * kPageTokens <= length_);
  if (page == torn_[group] || groups_[group].kind == GroupKind::ring) return {};
  return pages_[group][page];
}

bool SequenceCache::is_checkpoint(std::uint32_t page) const {
  return page < length_ / kPageTokens &&
         std::find(checkpoints_.begin(), checkpoints_.end(), page) != checkpoints_.end();
}

std::uint64_t SequenceCache::release_checkpoints() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind != GroupKind::recurrent) continue;
    for (const std::uint32_t page : checkpoints_) {
      if (page < freed_[g]) set_page(g, page, PageRef());
    }
  }
  std::erase_if(checkpoints_, [this](std::uint32_t page) { return page < length_ / kPageTokens; });
  return std::exchange(skipped_, 0);
}

SequenceCache SequenceCache::fork() const {
  assert(pending_ == 0);
  SequenceCache copy(groups_, positions_max_);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::size_t count = pages_of(groups_[g].kind, length_);
    copy.tables_[g].resize(count);
    copy.pages_[g].resize(count);
    for (std::size_t page = 0; page < count; ++page) copy.set_page(g, page, pages_[g][page]);
  }
  copy.freed_ = freed_;
  copy.torn_ = torn_;
  copy.rollback_ = rollback_;
  copy.length_ = length_;
  return copy;
}

void SequenceCache::free_out_of_reach(bool attention) {
  // The next row stands at position length_, or earlier after truncate().
  const std::uint32_t row = length_ > kRollbackMax ? length_ - kRollbackMax : 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupKind kind = groups_[g].kind;
    if ((kind == GroupKind::attention) != attention) continue;
    const std::uint32_t first_page = first_page_seen(attention ? row : rollback_, groups_[g].reach);
    for (; freed_[g] < first_page; ++freed_[g]) {
      if (kind == GroupKind::recurrent && is_checkpoint(freed_[g])) continue;
      if (freed_[g] < sink_pages(groups_[g].sink)) continue;
      set_page(g, freed_[g], PageRef());
    }
  }
}

}  // namespace drafthouse
