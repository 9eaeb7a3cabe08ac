#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

double log_sum_exp(const float* values, std::uint32_t count) {
  float max = -std::numeric_limits<float>::infinity();
  for (std::uint32_t i = 0; i < count; ++i) max = std::fmax(max, values[i]);
  const double shift = std::isfinite(max) ? static_cast<double>(max) : 0.0;
  double sum = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(values[i]) - shift);
  return std::log(sum) + shift;
}

}  // namespace drafthouse::reference
