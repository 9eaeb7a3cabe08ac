#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Pages of one size. Grows in slabs up to `pages_max`, re-uses what was given back, and returns
// memory to the system only when it goes. Must outlive every sequence that holds its pages. Confined
// to the engine thread.
class PagePool {
 public:
  PagePool(std::size_t page_bytes, std::size_t pages_max, MemoryTag tag, MemoryLedger& ledger);

  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t pages_in_use() const { return in_use_; }

  // A page with unspecified contents; no_memory at the limit or when the system refuses.
  Result<std::byte*> take();
  void give_back(std::byte* page);

 private:
  std::size_t page_bytes_;
  std::size_t pages_max_;
  MemoryTag tag_;
  MemoryLedger& ledger_;
  std::vector<Buffer> slabs_;
  std::vector<std::byte*> free_;
  std::size_t in_use_ = 0;
  std::size_t allocated_ = 0;
};

}  // namespace drafthouse
