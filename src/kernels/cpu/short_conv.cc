#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void short_conv(const ShortConvJob& job) {
  const Vec zero = splat(0.0f);
  const Vec one = splat(1.0f);
  for (std::uint32_t i = 0; i < job.channels; i += kLanes) {
    const std::uint32_t count = job.channels - i;
    Vec acc = zero;
    for (std::uint32_t j = 0; j < job.kernel; ++j) {
      if (job.taps[j] == nullptr) continue;
      const Vec weight = load_first(job.weights[j] + i, count, zero);
      acc = fma(load_first(job.taps[j] + i, count, zero), weight, acc);
    }
    if (job.silu) acc = div(acc, add(one, exp(sub(zero, acc))));
    store_first(job.out + i, count, acc);
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
