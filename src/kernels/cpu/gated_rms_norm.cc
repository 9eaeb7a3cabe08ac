#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void gated_rms_norm(float* out, const float* in, const float* gain, const float* gate,
                    std::uint32_t width, float eps) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  Vec squares = zero;
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const Vec a = load_first(in + i, width - i, zero);
    squares = fma(a, a, squares);
  }
  const float mean_square = sum(squares) / static_cast<float>(width);
  const Vec scale = splat(1.0f / __builtin_sqrtf(mean_square + eps));
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    const Vec g = load_first(gate + i, count, zero);
    const Vec silu = div(g, add(one, exp(sub(zero, g))));
    const Vec scaled = mul(load_first(in + i, count, zero), scale);
    store_first(out + i, count, mul(mul(scaled, load_first(gain + i, count, zero)), silu));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
