#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cache/page_pool.h"
#include "cache/state_layout.h"

namespace drafthouse {

// The pages of one pair: a pool per layer group. Shared by the engine's sequences and the prefix
// cache, so that publishing state copies nothing. Thread-safe.
class PageStore {
 public:
  PageStore(StateLayout layout, MemoryBudget* budget);

  const StateLayout& layout() const { return layout_; }
  const std::shared_ptr<PagePool>& pool(std::size_t group) const { return pools_[group]; }
  const MemoryLedger& ledger() const { return *ledger_; }
  void trim();

 private:
  StateLayout layout_;
  std::shared_ptr<MemoryLedger> ledger_;
  std::vector<std::shared_ptr<PagePool>> pools_;
};

}  // namespace drafthouse
