#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void rope(float* head, const float* cos, const float* sin, std::uint32_t half) {
  const Vec zero = splat(0.0f);
  const Vec minus_one = splat(-1.0f);
  for (std::uint32_t i = 0; i < half; i += kLanes) {
    const std::uint32_t count = half - i;
    const Vec a = load_first(head + i, count, zero);
    const Vec b = load_first(head + half + i, count, zero);
    const Vec c = load_first(cos + i, count, zero);
    const Vec s = load_first(sin + i, count, zero);
    store_first(head + i, count, fma(a, c, mul(mul(b, minus_one), s)));
    store_first(head + half + i, count, fma(b, c, mul(a, s)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
