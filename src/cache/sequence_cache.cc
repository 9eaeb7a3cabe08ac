#include "cache/sequence_cache.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace drafthouse {

SequenceCache::SequenceCache(std::vector<LayerGroup> groups)
    : groups_(std::move(groups)),
      pages_(groups_.size()),
      tables_(groups_.size()),
      freed_(groups_.size(), 0) {}

void SequenceCache::drop_page(std::size_t group, std::size_t page) {
  pages_[group][page].reset();
  tables_[group][page] = nullptr;
}

Status SequenceCache::extend(std::uint32_t count) {
  assert(pending_ == 0);
  const std::size_t needed = (std::size_t{length_} + count + kPageTokens - 1) / kPageTokens;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
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
      tables_[g].pop_back();
      pages_[g].pop_back();
    }
    freed_[g] = std::min(freed_[g], static_cast<std::uint32_t>(tables_[g].size()));
  }
}

void SequenceCache::free_out_of_reach() {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    // The next row stands at position length_.
    const std::uint32_t first_page = first_page_seen(length_, groups_[g].reach);
    for (; freed_[g] < first_page; ++freed_[g]) drop_page(g, freed_[g]);
  }
}

}  // namespace drafthouse
