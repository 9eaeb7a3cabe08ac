#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void rope(float* head, const float* cos, const float* sin, std::uint32_t half) {
  const Vec zero = splat(0.0f);
  const Vec minus_one = splat(-1.0f);
  for (std::uint32_t i = 0; i < half; i += kLanes) {
    const Mask mask = first_lanes(half - i);
    const Vec a = load(head + i, mask, zero);
    const Vec b = load(head + half + i, mask, zero);
    const Vec c = load(cos + i, mask, zero);
    const Vec s = load(sin + i, mask, zero);
    store(head + i, mask, fma(a, c, mul(mul(b, minus_one), s)));
    store(head + half + i, mask, fma(b, c, mul(a, s)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
