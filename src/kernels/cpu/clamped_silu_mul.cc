#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void clamped_silu_mul(float* out, const float* gate, const float* up, std::uint32_t width,
                      float alpha, float limit) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  const Vec high = splat(limit);
  const Vec low = splat(-limit);
  const Vec slope = splat(-alpha);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    // The second operand is what max and min give for NaN.
    const Vec g = min(high, load_first(gate + i, count, zero));
    const Vec u = max(low, min(high, load_first(up + i, count, zero)));
    const Vec silu = div(g, add(one, exp(mul(slope, g))));
    store_first(out + i, count, mul(add(u, one), silu));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
