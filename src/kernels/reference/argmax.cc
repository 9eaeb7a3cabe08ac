#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

std::uint32_t argmax(const float* values, std::uint32_t count) {
  std::uint32_t best = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) continue;
    if (best == count || values[i] > values[best]) best = i;
  }
  return best == count ? 0 : best;
}

}  // namespace drafthouse::reference
