#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

inline Vec sigmoid(Vec x) {
  const Vec one = splat(1.0f);
  return div(one, add(one, exp(sub(splat(0.0f), x))));
}

// ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^−|x| in (0, 1], and ln(1 + y) = 2 artanh(s) with
// s = y / (2 + y) <= 1/3: nine terms of its series leave 1e-9.
inline Vec softplus(Vec x) {
  const Vec zero = splat(0.0f);
  const Vec y = exp(min(x, sub(zero, x)));
  const Vec s = div(y, add(splat(2.0f), y));
  const Vec squared = mul(s, s);
  Vec p = splat(1.0f / 17.0f);
  p = fma(p, squared, splat(1.0f / 15.0f));
  p = fma(p, squared, splat(1.0f / 13.0f));
  p = fma(p, squared, splat(1.0f / 11.0f));
  p = fma(p, squared, splat(1.0f / 9.0f));
  p = fma(p, squared, splat(1.0f / 7.0f));
  p = fma(p, squared, splat(1.0f / 5.0f));
  p = fma(p, squared, splat(1.0f / 3.0f));
  p = fma(p, squared, splat(1.0f));
  return fma(add(s, s), p, max(x, zero));
}

}  // namespace

void sigmoid_mul(float* out, const float* gate, const float* in, std::uint32_t width) {
  const Vec zero = splat(0.0f);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    const Vec g = sigmoid(load_first(gate + i, count, zero));
    store_first(out + i, count, mul(g, load_first(in + i, count, zero)));
  }
}

void multiply(float* out, const float* a, const float* b, std::uint32_t width) {
  const Vec zero = splat(0.0f);
  for (std::uint32_t i = 0; i < width; i += kLanes) {
    const std::uint32_t count = width - i;
    store_first(out + i, count,
                mul(load_first(a + i, count, zero), load_first(b + i, count, zero)));
  }
}

void delta_gates(float* decay, float* beta, const float* a, const float* b, const float* a_log,
                 const float* dt_bias, std::uint32_t heads) {
  const Vec zero = splat(0.0f);
  for (std::uint32_t i = 0; i < heads; i += kLanes) {
    const std::uint32_t count = heads - i;
    const Vec dt = add(load_first(a + i, count, zero), load_first(dt_bias + i, count, zero));
    const Vec rate = sub(zero, exp(load_first(a_log + i, count, zero)));
    const Vec g = mul(rate, softplus(dt));
    const Vec open = sigmoid(load_first(b + i, count, zero));
    store_first(decay + i, count, g);
    store_first(beta + i, count, open);
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
