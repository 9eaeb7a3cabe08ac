#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void gated_rms_norm(float* out, const float* in, const float* gain, const float* gate,
                    std::uint32_t width, float eps) {
  double squares = 0.0;
  for (std::uint32_t i = 0; i < width; ++i) squares += static_cast<double>(in[i]) * in[i];
  const double scale = 1.0 / std::sqrt(squares / width + static_cast<double>(eps));
  for (std::uint32_t i = 0; i < width; ++i) {
    const double g = gate[i];
    out[i] =
        static_cast<float>(in[i] * scale * static_cast<double>(gain[i]) * g / (1.0 + std::exp(-g)));
  }
}

}  // namespace drafthouse::reference
