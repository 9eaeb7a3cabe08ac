#include "sampling/history.h"

#include <algorithm>
#include <cassert>

namespace drafthouse {

History::History(std::uint32_t vocabulary, std::uint32_t prompt_length, bool counted)
    : prompt_length_(prompt_length), counts_(counted ? vocabulary : 0) {}

void History::sync(std::span<const std::uint32_t> ids) {
  if (ids.size() < ids_.size() || !std::equal(ids_.begin(), ids_.end(), ids.begin())) {
    ids_.clear();
    distinct_.clear();
    std::fill(counts_.begin(), counts_.end(), 0u);
  }
  for (const std::uint32_t id : ids.subspan(ids_.size())) push(id);
}

void History::reserve(std::uint32_t length) {
  ids_.reserve(length);
  distinct_.reserve(std::min<std::size_t>(length, counts_.size()));
}

void History::push(std::uint32_t id) {
  if (!counts_.empty()) count(id);
  ids_.push_back(id);
}

void History::count(std::uint32_t id) {
  assert(id < counts_.size());
  if ((counts_[id] & 1u) == 0) {
    counts_[id] |= 1u;
    distinct_.push_back(id);
  }
  if (ids_.size() >= prompt_length_) counts_[id] += 2;
}

}  // namespace drafthouse
