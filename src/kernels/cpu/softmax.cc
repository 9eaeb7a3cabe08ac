#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void softmax(float* values, std::uint32_t count) {
  const Vec lowest = splat(-__builtin_inff());
  Vec best = lowest;
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    best = max(load_first(values + i, count - i, lowest), best);
  }
  const Vec top = splat(max_lane(best));
  DoubleVec sums = double_zero();
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const Vec e = exp(sub(load_first(values + i, count - i, lowest), top));
    sums = add(sums, e);
    store_first(values + i, count - i, e);
  }
  double lane[kLanes];
  store(lane, sums);
  for (std::uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::uint32_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  const Vec sum = splat(static_cast<float>(lane[0]));
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    store_first(values + i, count - i, div(load_first(values + i, count - i, lowest), sum));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
