#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

double log_sum_exp(const float* values, std::uint32_t count) {
  const Vec lowest = splat(-__builtin_inff());
  Vec best = lowest;
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    best = max(load_first(values + i, count - i, lowest), best);
  }
  const float top = max_lane(best);
  const float shift = __builtin_isfinite(top) ? top : 0.0f;

  DoubleVec sums = double_zero();
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const Vec x = load_first(values + i, count - i, lowest);
    sums = add(sums, exp(sub(x, splat(shift))));
  }
  double lane[kLanes];
  store(lane, sums);
  for (std::uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return __builtin_log(lane[0]) + static_cast<double>(shift);
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
