#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void group_maxima(const float* values, std::uint32_t count, float* maxima) {
  for (std::uint32_t begin = 0; begin < count; begin += kLogitGroup) {
    float best = -std::numeric_limits<float>::infinity();
    for (std::uint32_t i = begin; i < std::min(count, begin + kLogitGroup); ++i) {
      if (values[i] > best) best = values[i];
    }
    *maxima++ = best;
  }
}

void group_weights(const float* values, std::uint32_t count, float shift, float scale,
                   float* sums) {
  for (std::uint32_t begin = 0; begin < count; begin += kLogitGroup) {
    double sum = 0;
    for (std::uint32_t i = begin; i < std::min(count, begin + kLogitGroup); ++i) {
      sum += std::exp(static_cast<double>((values[i] - shift) * scale));
    }
    *sums++ = static_cast<float>(sum);
  }
}

void weights(const float* values, std::uint32_t count, float shift, float scale, float* out) {
  for (std::uint32_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(std::exp(static_cast<double>((values[i] - shift) * scale)));
  }
}

}  // namespace drafthouse::reference
