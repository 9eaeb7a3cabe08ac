#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void silu_mul(float* out, const float* gate, const float* up, std::uint32_t width) {
  for (std::uint32_t i = 0; i < width; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * static_cast<double>(up[i]));
  }
}

}  // namespace drafthouse::reference
