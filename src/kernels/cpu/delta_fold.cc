#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void delta_fold(const DeltaChunk& chunk, float* next) {
  constexpr std::uint32_t kLast = kPagePositions - 1;
  constexpr std::uint32_t kTogether = 4;  // rows of the state: they share the loads of u
  const Vec end = splat(chunk.decays[kLast]);
  float weight[kPagePositions];
  for (std::uint32_t j = 0; j < kPagePositions; j += kLanes) {
    store(weight + j, exp(sub(end, load(chunk.decays + j))));
  }
  const Vec since = exp(end);
  const Vec zero = splat(0.0f);
  // key_dim is a multiple of 16.
  for (std::uint32_t i = 0; i < chunk.key_dim; i += kTogether) {
    float factor[kTogether][kPagePositions];
    for (std::uint32_t j = 0; j < kPagePositions; ++j) {
      const float* key = chunk.keys + std::size_t{j} * chunk.key_dim + i;
      for (std::uint32_t r = 0; r < kTogether; ++r) factor[r][j] = weight[j] * key[r];
    }
    for (std::uint32_t d = 0; d < chunk.value_dim; d += kLanes) {
      const std::size_t at = std::size_t{i} * chunk.value_dim + d;
      Vec acc[kTogether];
      for (std::uint32_t r = 0; r < kTogether; ++r) {
        acc[r] = chunk.state == nullptr ? zero
                                        : mul(since, load(chunk.state + at + r * chunk.value_dim));
      }
      const float* u = chunk.updates + d;
      for (std::uint32_t j = 0; j < kPagePositions; ++j, u += chunk.value_dim) {
        const Vec update = load(u);
        for (std::uint32_t r = 0; r < kTogether; ++r) {
          acc[r] = fma(update, splat(factor[r][j]), acc[r]);
        }
      }
      for (std::uint32_t r = 0; r < kTogether; ++r) {
        store(next + at + r * chunk.value_dim, acc[r]);
      }
    }
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
