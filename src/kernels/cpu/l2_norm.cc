#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void l2_norm(float* out, const float* in, std::uint32_t width, float eps, float scale) {
  const Vec zero = splat(0.0f);
  Vec squares = zero;
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const Vec a = load_first(in + i, width - i, zero);
    squares = fma(a, a, squares);
  }
  const Vec factor = splat(scale / __builtin_sqrtf(sum(squares) + eps));
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    store_first(out + i, count, mul(load_first(in + i, count, zero), factor));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
