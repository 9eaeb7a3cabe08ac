#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void softcap(float* values, std::uint32_t count, float cap) {
  for (std::uint32_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(cap * std::tanh(static_cast<double>(values[i]) / cap));
  }
}

}  // namespace drafthouse::reference
