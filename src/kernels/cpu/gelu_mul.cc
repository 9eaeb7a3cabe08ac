#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

// ½(1 + tanh z) is 1 / (1 + e^−2z).
void gelu_mul(float* out, const float* gate, const float* up, std::uint32_t width) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  const Vec slope = splat(-1.5957691216057308f);  // −2 √(2/π)
  const Vec cubic = splat(0.044715f);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    const Vec g = load_first(gate + i, count, zero);
    const Vec inner = fma(mul(cubic, mul(g, g)), g, g);
    const Vec gelu = div(g, add(one, exp(mul(slope, inner))));
    store_first(out + i, count, mul(gelu, load_first(up + i, count, zero)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
