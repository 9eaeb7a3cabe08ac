#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

// tanh y is 1 − 2 / (1 + e^2y).
void softcap(float* values, std::uint32_t count, float cap) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  const Vec two = splat(2.0f);
  const Vec scale = splat(cap);
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const std::uint32_t left = count - i;
    const Vec y = div(load_first(values + i, left, zero), scale);
    const Vec tanh = sub(one, div(two, add(one, exp(add(y, y)))));
    store_first(values + i, left, mul(scale, tanh));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
