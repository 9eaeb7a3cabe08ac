#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void rope(float* head, const float* cos, const float* sin, std::uint32_t half) {
  for (std::uint32_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = std::fma(a, cos[i], -(b * sin[i]));
    head[i + half] = std::fma(b, cos[i], a * sin[i]);
  }
}

}  // namespace drafthouse::reference
