#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void clamped_silu_mul(float* out, const float* gate, const float* up, std::uint32_t width,
                      float alpha, float limit) {
  for (std::uint32_t i = 0; i < width; ++i) {
    const double g = std::min(gate[i], limit);
    const double u = std::clamp(up[i], -limit, limit);
    out[i] = static_cast<float>((u + 1.0) * g / (1.0 + std::exp(-static_cast<double>(alpha) * g)));
  }
}

}  // namespace drafthouse::reference
