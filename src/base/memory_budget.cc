#include "base/memory_budget.h"

#include <fmt/format.h>

#include <utility>

#include "base/units.h"

namespace drafthouse {

void MemoryBudget::set_relief(Relief relief) {
  auto shared = relief ? std::make_shared<const Relief>(std::move(relief)) : nullptr;
  const std::lock_guard<std::mutex> lock(relief_lock_);
  relief_ = std::move(shared);
}

bool MemoryBudget::try_reserve(std::size_t bytes) {
  const std::size_t limit = this->limit();
  std::size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (limit != 0 && (bytes > limit || used > limit - bytes)) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  std::size_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used + bytes &&
         !peak_.compare_exchange_weak(peak, used + bytes, std::memory_order_relaxed)) {
  }
  return true;
}

bool MemoryBudget::relieve(std::size_t bytes, const MemoryLedger& requester) {
  std::shared_ptr<const Relief> relief;
  {
    const std::lock_guard<std::mutex> lock(relief_lock_);
    relief = relief_;
  }
  return relief != nullptr && (*relief)(bytes, requester);
}

Status MemoryBudget::reserve(std::size_t bytes, std::string_view what,
                             const MemoryLedger& requester) {
  while (!try_reserve(bytes)) {
    if (relieve(bytes, requester)) continue;
    const std::size_t limit = this->limit();
    const std::size_t used = this->used();
    return Status(
        Code::no_memory,
        fmt::format("{} needs {}; free {} of {}; raise the memory limit or unload a model", what,
                    human_bytes(bytes), human_bytes(limit > used ? limit - used : 0),
                    human_bytes(limit)));
  }
  return {};
}

}  // namespace drafthouse
