#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void merge_spans(float* m, float* l, float* acc, float m2, float l2, const float* acc2,
                 std::uint32_t head_dim) {
  if (l2 == 0.0f) return;
  const float max = std::fmax(*m, m2);
  const float earlier = *l == 0.0f ? 0.0f : std::exp(*m - max);
  const float later = std::exp(m2 - max);
  *m = max;
  *l = std::fma(l2, later, *l * earlier);
  for (std::uint32_t i = 0; i < head_dim; ++i) {
    acc[i] = std::fma(acc2[i], later, acc[i] * earlier);
  }
}

}  // namespace drafthouse::reference
