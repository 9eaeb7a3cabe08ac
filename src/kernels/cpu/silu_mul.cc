#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void silu_mul(float* out, const float* gate, const float* up, std::uint32_t width) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const Mask mask = first_lanes(width - i);
    const Vec g = load(gate + i, mask, zero);
    const Vec silu = div(g, add(one, exp(sub(zero, g))));
    store(out + i, mask, mul(silu, load(up + i, mask, zero)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
