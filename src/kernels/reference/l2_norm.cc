#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void l2_norm(float* out, const float* in, std::uint32_t width, float eps, float scale) {
  double squares = 0.0;
  for (std::uint32_t i = 0; i < width; ++i) squares += static_cast<double>(in[i]) * in[i];
  const double factor = static_cast<double>(scale) / std::sqrt(squares + static_cast<double>(eps));
  for (std::uint32_t i = 0; i < width; ++i) out[i] = static_cast<float>(in[i] * factor);
}

}  // namespace drafthouse::reference
