#pragma once

// A vector of 16 floats, the same on every ISA, so that an operation written with it gives the same
// bits on every ISA. Tails are loaded and stored with masks, never by a scalar loop.
#if defined(__AVX512F__)
#include "kernels/cpu/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/vec_avx2.h"
#else
#include "kernels/cpu/vec_generic.h"
#endif

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

inline Mask first_lanes(std::uint32_t count) { return mask_of((1u << count) - 1u); }

// The first `count` lanes; all of them when count is larger. Other lanes become `fill` and their
// memory is not touched.
inline Vec load_first(const float* from, std::uint32_t count, Vec fill) {
  return count >= kLanes ? load(from) : load(from, first_lanes(count), fill);
}
inline void store_first(float* to, std::uint32_t count, Vec x) {
  if (count >= kLanes) {
    store(to, x);
  } else {
    store(to, first_lanes(count), x);
  }
}

// e^x within 2e-7, by Cody–Waite reduction and a minimax polynomial of degree 6. e^0 is 1 and
// e^-inf is 0, exactly; NaN stays NaN.
inline Vec exp(Vec x) {
  x = min(splat(89.0f), max(splat(-105.0f), x));
  const Vec n = round(mul(x, splat(0x1.715476p+0f)));
  Vec r = fma(n, splat(-0x1.62e43p-1f), x);
  r = fma(n, splat(0x1.05c61p-29f), r);
  Vec p = splat(0x1.6d113cp-10f);
  p = fma(p, r, splat(0x1.120ba2p-7f));
  p = fma(p, r, splat(0x1.55551ap-5f));
  p = fma(p, r, splat(0x1.5554dcp-3f));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  return times_power_of_two(p, n);
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
