#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

// First the largest value, then the first place where it stands: both passes are plain streams.
std::uint32_t argmax(const float* values, std::uint32_t count) {
  const Vec lowest = splat(-__builtin_inff());
  constexpr std::uint32_t kStreams = 4;
  Vec best[kStreams] = {lowest, lowest, lowest, lowest};
  std::uint32_t i = 0;
  for (; i + kStreams * kLanes <= count; i += kStreams * kLanes) {
    for (std::uint32_t s = 0; s < kStreams; ++s) {
      best[s] = max(load(values + i + s * kLanes), best[s]);
    }
  }
  for (; i < count; i += kLanes) {
    best[0] = max(load_first(values + i, count - i, lowest), best[0]);
  }
  const Vec top = splat(max_lane(max(max(best[0], best[1]), max(best[2], best[3]))));

  const Vec nan = splat(__builtin_nanf(""));
  for (i = 0; i < count; i += kLanes) {
    const std::uint32_t equal = equal_bits(load_first(values + i, count - i, nan), top);
    if (equal != 0) return i + static_cast<std::uint32_t>(__builtin_ctz(equal));
  }
  return 0;
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
