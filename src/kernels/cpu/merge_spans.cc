#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void merge_spans(float* m, float* l, float* acc, float m2, float l2, const float* acc2,
                 std::uint32_t head_dim) {
  if (l2 == 0.0f) return;
  const float max = *m > m2 ? *m : m2;
  const Vec zero = splat(0.0f);
  const Vec earlier = *l == 0.0f ? zero : exp(splat(*m - max));
  const Vec later = exp(splat(m2 - max));
  float joined[kLanes];
  store(joined, fma(splat(l2), later, mul(splat(*l), earlier)));
  *m = max;
  *l = joined[0];
  for (std::uint32_t i = 0; i < head_dim; i += kLanes) {
    const std::uint32_t count = head_dim - i;
    const Vec a = mul(load_first(acc + i, count, zero), earlier);
    store_first(acc + i, count, fma(load_first(acc2 + i, count, zero), later, a));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
