#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void softmax(float* values, std::uint32_t count) {
  const double top = *std::max_element(values, values + count);
  double sum = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(values[i]) - top);
  for (std::uint32_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::exp(static_cast<double>(values[i]) - top) / sum);
  }
}

}  // namespace drafthouse::reference
