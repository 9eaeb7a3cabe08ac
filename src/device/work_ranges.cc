#include "device/work_ranges.h"

#include <algorithm>

namespace drafthouse {
namespace {

// A stretch gives out this part of what it has left, so that threads end at about the same time.
constexpr std::uint32_t kLeftPerTake = 2;

constexpr std::uint64_t packed(std::uint32_t begin, std::uint32_t end) {
  return std::uint64_t{begin} << 32 | end;
}
constexpr WorkRanges::Range unpacked(std::uint64_t bounds) {
  return {static_cast<std::uint32_t>(bounds >> 32), static_cast<std::uint32_t>(bounds)};
}

}  // namespace

void WorkRanges::reset(std::uint32_t units) {
  const std::uint64_t count = stretches_.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    stretches_[i].bounds.store(packed(static_cast<std::uint32_t>(units * i / count),
                                      static_cast<std::uint32_t>(units * (i + 1) / count)),
                               std::memory_order_relaxed);
  }
}

WorkRanges::Range WorkRanges::take_own(Stretch& own, std::uint32_t most) {
  std::uint64_t bounds = own.bounds.load(std::memory_order_relaxed);
  for (;;) {
    const Range left = unpacked(bounds);
    if (left.empty()) return {};
    const std::uint32_t share = (left.end - left.begin + kLeftPerTake - 1) / kLeftPerTake;
    const std::uint32_t cut = left.begin + std::clamp(share, 1u, most);
    if (own.bounds.compare_exchange_weak(bounds, packed(cut, left.end),
                                         std::memory_order_relaxed)) {
      return {left.begin, cut};
    }
  }
}

// False once every stretch is empty. Bounds describe all there is to know about a stretch, so one
// that has the same bounds again is as good as one that never changed.
bool WorkRanges::take_over(Stretch& own) {
  for (;;) {
    Stretch* longest = nullptr;
    std::uint64_t bounds = 0;
    std::uint32_t length = 0;
    for (Stretch& other : stretches_) {
      const std::uint64_t seen = other.bounds.load(std::memory_order_relaxed);
      const Range left = unpacked(seen);
      if (left.end - left.begin <= length) continue;
      length = left.end - left.begin;
      longest = &other;
      bounds = seen;
    }
    if (longest == nullptr) return false;
    const Range left = unpacked(bounds);
    const std::uint32_t cut = left.begin + length / 2;
    if (longest->bounds.compare_exchange_strong(bounds, packed(left.begin, cut),
                                                std::memory_order_relaxed)) {
      own.bounds.store(packed(cut, left.end), std::memory_order_relaxed);
      return true;
    }
  }
}

WorkRanges::Range WorkRanges::take(unsigned own, std::uint32_t most) {
  Stretch& stretch = stretches_[own];
  for (;;) {
    const Range range = take_own(stretch, most);
    if (!range.empty()) return range;
    if (!take_over(stretch)) return {};
  }
}

}  // namespace drafthouse
