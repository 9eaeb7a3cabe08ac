#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

void delta_fold(const DeltaChunk& chunk, float* next) {
  const double end = chunk.decays[kPagePositions - 1];
  for (std::uint32_t i = 0; i < chunk.key_dim; ++i) {
    for (std::uint32_t d = 0; d < chunk.value_dim; ++d) {
      const std::size_t at = std::size_t{i} * chunk.value_dim + d;
      double sum = chunk.state == nullptr ? 0.0 : std::exp(end) * chunk.state[at];
      for (std::uint32_t j = 0; j < kPagePositions; ++j) {
        sum += std::exp(end - chunk.decays[j]) * chunk.keys[std::size_t{j} * chunk.key_dim + i] *
               chunk.updates[std::size_t{j} * chunk.value_dim + d];
      }
      next[at] = static_cast<float>(sum);
    }
  }
}

}  // namespace drafthouse::reference
