#include <cmath>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void sigmoid_mul(float* out, const float* gate, const float* in, std::uint32_t width) {
  for (std::uint32_t i = 0; i < width; ++i) out[i] = static_cast<float>(sigmoid(gate[i]) * in[i]);
}

void multiply(float* out, const float* a, const float* b, std::uint32_t width) {
  for (std::uint32_t i = 0; i < width; ++i) out[i] = a[i] * b[i];
}

void delta_gates(float* decay, float* beta, const float* a, const float* b, const float* a_log,
                 const float* dt_bias, std::uint32_t heads) {
  for (std::uint32_t h = 0; h < heads; ++h) {
    const double x = a[h] + dt_bias[h];
    const double softplus = std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    const double open = sigmoid(b[h]);
    decay[h] = static_cast<float>(-std::exp(static_cast<double>(a_log[h])) * softplus);
    beta[h] = static_cast<float>(open);
  }
}

}  // namespace drafthouse::reference
