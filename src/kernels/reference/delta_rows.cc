#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {
namespace {

double dot(const float* a, const float* b, std::uint32_t count) {
  double sum = 0.0;
  for (std::uint32_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// (Sᵀ x)[d]
double read_state(const DeltaChunk& chunk, const float* x, std::uint32_t d) {
  if (chunk.state == nullptr) return 0.0;
  double sum = 0.0;
  for (std::uint32_t i = 0; i < chunk.key_dim; ++i) {
    sum += static_cast<double>(chunk.state[std::size_t{i} * chunk.value_dim + d]) * x[i];
  }
  return sum;
}

}  // namespace

void delta_rows(const DeltaRowsJob& job) {
  const DeltaChunk& chunk = job.chunk;
  for (std::uint32_t row = 0; row < job.rows; ++row) {
    const std::uint32_t t = job.first + row;
    const float* k = chunk.keys + std::size_t{t} * chunk.key_dim;
    const float* q = job.q + row * job.q_stride;
    const float before = t == 0 ? 0.0f : chunk.decays[t - 1];
    const float decay = before + job.decay[row * job.gate_stride];
    chunk.decays[t] = decay;
    const double since = std::exp(static_cast<double>(decay));
    for (std::uint32_t d = 0; d < chunk.value_dim; ++d) {
      double known = since * read_state(chunk, k, d);
      double out = since * read_state(chunk, q, d);
      for (std::uint32_t j = 0; j < t; ++j) {
        const float* earlier = chunk.keys + std::size_t{j} * chunk.key_dim;
        const double weight = std::exp(static_cast<double>(decay) - chunk.decays[j]);
        const double u = chunk.updates[std::size_t{j} * chunk.value_dim + d];
        known += weight * dot(earlier, k, chunk.key_dim) * u;
        out += weight * dot(earlier, q, chunk.key_dim) * u;
      }
      const double beta = job.beta[row * job.gate_stride];
      const auto u = static_cast<float>(beta * (job.v[row * job.v_stride + d] - known));
      chunk.updates[std::size_t{t} * chunk.value_dim + d] = u;
      out += dot(k, q, chunk.key_dim) * static_cast<double>(u);
      job.out[row * job.out_stride + d] = static_cast<float>(out);
    }
  }
}

}  // namespace drafthouse::reference
