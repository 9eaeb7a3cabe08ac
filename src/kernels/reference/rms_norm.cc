#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void rms_norm(float* out, const float* in, const float* gain, std::uint32_t width, float eps) {
  double squares = 0.0;
  for (std::uint32_t i = 0; i < width; ++i) squares += static_cast<double>(in[i]) * in[i];
  const auto scale =
      static_cast<float>(1.0 / std::sqrt(squares / width + static_cast<double>(eps)));
  for (std::uint32_t i = 0; i < width; ++i) out[i] = in[i] * scale * gain[i];
}

}  // namespace drafthouse::reference
