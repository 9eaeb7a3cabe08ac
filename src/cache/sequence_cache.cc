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

Status SequenceCache::extend(std::uint32_t count) {
  assert(pending_ == 0);
  free_out_of_reach();
  const std::size_t needed = (std::size_t{length_} + count + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (count > 0 && length_ % kPageTokens != 0) {
      if (Status s = own_open_page(g); !s.ok()) return s;
    }
    while (tables_[g].size() < needed) {
      Result<PageRef> page = groups_[g].pool->take();
      // Pages taken so far stay reserved past the length; they are used by the next extend().
      if (!page.ok()) return page.status();
      tables_[g].push_back(page.value().data());
      pages_[g].push_back(std::move(page).value());
    }
  }
  pending_ = count;
  return {};
}

void SequenceCache::commit(std::uint32_t accepted) {
  assert(accepted <= pending_);
  length_ += accepted;
  pending_ = 0;
}

void SequenceCache::truncate(std::uint32_t length) {
  assert(length <= length_);
  length_ = length;
  pending_ = 0;
  const std::size_t kept = (std::size_t{length} + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    assert(length == 0 || freed_[g] <= first_page_seen(length, groups_[g].reach));
    while (tables_[g].size() > kept) {
      tables_[g].pop_back();
      pages_[g].pop_back();
    }
    freed_[g] = std::min(freed_[g], static_cast<std::uint32_t>(tables_[g].size()));
    if (torn_[g] >= kept) torn_[g] = kNone;
  }
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
  free_out_of_reach();
}

PageRef SequenceCache::share(std::uint32_t group, std::uint32_t page) const {
  assert((std::size_t{page} + 1) * kPageTokens <= length_);
  return page == torn_[group] ? PageRef() : pages_[group][page];
}

SequenceCache SequenceCache::fork() const {
  assert(pending_ == 0);
  SequenceCache copy(groups_, positions_max_);
  const std::size_t count = (std::size_t{length_} + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    copy.tables_[g].resize(count);
    copy.pages_[g].resize(count);
    for (std::size_t page = 0; page < count; ++page) copy.set_page(g, page, pages_[g][page]);
  }
  copy.freed_ = freed_;
  copy.torn_ = torn_;
  copy.length_ = length_;
  return copy;
}

void SequenceCache::free_out_of_reach() {
  // The next row stands at position length_, or earlier after truncate().
  const std::uint32_t row = length_ > kRollbackMax ? length_ - kRollbackMax : 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint32_t first_page = first_page_seen(row, groups_[g].reach);
    for (; freed_[g] < first_page; ++freed_[g]) set_page(g, freed_[g], PageRef());
  }
}

}  // namespace drafthouse
