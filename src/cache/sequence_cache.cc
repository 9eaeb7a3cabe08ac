#include "cache/sequence_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace drafthouse {

SequenceCache::SequenceCache(std::vector<LayerGroup> groups)
    : groups_(std::move(groups)), tables_(groups_.size()), freed_(groups_.size(), 0) {}

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : groups_(std::move(other.groups_)),
      tables_(std::move(other.tables_)),
      freed_(std::move(other.freed_)),
      length_(std::exchange(other.length_, 0)),
      pending_(std::exchange(other.pending_, 0)) {
  other.groups_.clear();
  other.tables_.clear();
}

SequenceCache::~SequenceCache() {
  for (std::size_t g = 0; g < tables_.size(); ++g) {
    for (std::byte* page : tables_[g]) {
      if (page != nullptr) groups_[g].pool->give_back(page);
    }
  }
}

Status SequenceCache::extend(std::uint32_t count) {
  assert(pending_ == 0);
  const std::size_t needed = (std::size_t{length_} + count + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    while (tables_[g].size() < needed) {
      Result<std::byte*> page = groups_[g].pool->take();
      // Pages taken so far stay reserved past the length; they are used by the next extend().
      if (!page.ok()) return page.status();
      tables_[g].push_back(page.value());
    }
  }
  pending_ = count;
  return {};
}

void SequenceCache::commit(std::uint32_t accepted) {
  assert(accepted <= pending_);
  length_ += accepted;
  pending_ = 0;
  free_out_of_reach();
}

void SequenceCache::truncate(std::uint32_t length) {
  assert(length <= length_);
  length_ = length;
  pending_ = 0;
  const std::size_t kept = (std::size_t{length} + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    assert(groups_[g].reach == 0 || length == 0 || freed_[g] < kept);
    while (tables_[g].size() > kept) {
      if (tables_[g].back() != nullptr) groups_[g].pool->give_back(tables_[g].back());
      tables_[g].pop_back();
    }
    freed_[g] = std::min(freed_[g], static_cast<std::uint32_t>(tables_[g].size()));
  }
}

void SequenceCache::free_out_of_reach() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::uint32_t reach = groups_[g].reach;
    if (reach == 0 || length_ < reach) continue;
    // The next row stands at position length_ and sees positions > length_ - reach.
    const std::uint32_t first_page = (length_ - reach + 1) / kPageTokens;
    for (; freed_[g] < first_page; ++freed_[g]) {
      groups_[g].pool->give_back(tables_[g][freed_[g]]);
      tables_[g][freed_[g]] = nullptr;
    }
  }
}

}  // namespace drafthouse
