#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "drafthouse/status.h"

namespace drafthouse {

class MemoryLedger;

// The bytes that a host may use. Ledgers reserve here before they allocate. Thread-safe; must
// outlive its ledgers.
class MemoryBudget {
 public:
  // `bytes` do not fit for `requester`: free something and return true to have the reservation
  // tried again, or false. Called on the reserving thread, which holds no lock of the budget's.
  using Relief = std::function<bool(std::size_t bytes, const MemoryLedger& requester)>;

  // limit 0: none.
  explicit MemoryBudget(std::size_t limit = 0) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  std::size_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void set_limit(std::size_t limit) { limit_ = limit; }
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  // The highest used() so far.
  std::size_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void set_relief(Relief relief);

  // no_memory, with the arithmetic, when the bytes do not fit and relief frees no more.
  Status reserve(std::size_t bytes, std::string_view what, const MemoryLedger& requester);
  void give_back(std::size_t bytes) { used_ -= bytes; }
  bool fits(std::size_t bytes) const {
    const std::size_t limit = this->limit();
    const std::size_t used = this->used();
    return limit == 0 || (bytes <= limit && used <= limit - bytes);
  }
  // Asks for relief once; whether something was freed.
  bool relieve(std::size_t bytes, const MemoryLedger& requester);

 private:
  bool try_reserve(std::size_t bytes);

  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> peak_{0};
  std::mutex relief_lock_;
  std::shared_ptr<const Relief> relief_;
};

}  // namespace drafthouse
