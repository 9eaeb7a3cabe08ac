#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void gelu_mul(float* out, const float* gate, const float* up, std::uint32_t width) {
  constexpr double kSlope = 0.79788456080286536;  // √(2/π)
  for (std::uint32_t i = 0; i < width; ++i) {
    const double g = gate[i];
    const double z = kSlope * (g + 0.044715 * g * g * g);
    out[i] = static_cast<float>(g / (1.0 + std::exp(-2.0 * z)) * static_cast<double>(up[i]));
  }
}

}  // namespace drafthouse::reference
