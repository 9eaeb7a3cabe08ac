#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void silu_mul(float* out, const float* gate, const float* up, std::uint32_t width) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    const Vec g = load_first(gate + i, count, zero);
    const Vec silu = div(g, add(one, exp(sub(zero, g))));
    store_first(out + i, count, mul(silu, load_first(up + i, count, zero)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
