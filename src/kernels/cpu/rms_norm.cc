#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void rms_norm(float* out, const float* in, const float* gain, std::uint32_t width, float eps) {
  const Vec zero = splat(0.0f);
  // Vectors in turn go to two accumulators, which hides the latency of the fused multiply-add.
  Vec even = zero;
  Vec odd = zero;
  for (std::uint32_t i = 0; i < width; i += 2 * kLanes) {
    const Vec a = load_first(in + i, width - i, zero);
    even = fma(a, a, even);
    if (width - i > kLanes) {
      const Vec b = load_first(in + i + kLanes, width - i - kLanes, zero);
      odd = fma(b, b, odd);
    }
  }

  const float mean_square = sum(add(even, odd)) / static_cast<float>(width);
  const Vec scale = splat(1.0f / __builtin_sqrtf(mean_square + eps));
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    const Vec scaled = mul(load_first(in + i, count, zero), scale);
    store_first(out + i, count, mul(scaled, load_first(gain + i, count, zero)));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
