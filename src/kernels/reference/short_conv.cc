#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void short_conv(const ShortConvJob& job) {
  for (std::uint32_t c = 0; c < job.channels; ++c) {
    double sum = 0.0;
    for (std::uint32_t j = 0; j < job.kernel; ++j) {
      if (job.taps[j] == nullptr) continue;
      sum += static_cast<double>(job.taps[j][c]) * job.weights[j][c];
    }
    job.out[c] = static_cast<float>(job.silu ? sum / (1.0 + std::exp(-sum)) : sum);
  }
}

}  // namespace drafthouse::reference
