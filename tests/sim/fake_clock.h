#pragma once

#include <atomic>

#include "base/clock.h"

namespace drafthouse {

// Time that passes when somebody says so. Starts at 1, because 0 means "none" in many places.
class FakeClock final : public Clock {
 public:
  double now_s() const override { return now_.load(std::memory_order_relaxed); }
  void advance(double seconds) { now_.fetch_add(seconds, std::memory_order_relaxed); }

 private:
  std::atomic<double> now_{1.0};
};

}  // namespace drafthouse
