#pragma once

// GCC 12 takes the deliberately undefined operands in its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kLanes = 16;

using Vec = __m512;
using Mask = __mmask16;

inline Mask mask_of(std::uint32_t bits) { return static_cast<Mask>(bits); }

inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vec x) { _mm512_storeu_ps(to, x); }
// Lanes outside the mask become `fill`; their memory is not touched.
inline Vec load(const float* from, Mask mask, Vec fill) {
  return _mm512_mask_loadu_ps(fill, mask, from);
}
inline void store(float* to, Mask mask, Vec x) { _mm512_mask_storeu_ps(to, mask, x); }
// yes where the mask is set, else no.
inline Vec select(Mask mask, Vec yes, Vec no) { return _mm512_mask_blend_ps(mask, no, yes); }

inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// a > b ? a : b and a < b ? a : b, so b where either is NaN.
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
// To the nearest integer, ties to even.
inline Vec round(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x · 2^n for an integral n, with one rounding.
inline Vec times_power_of_two(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
// Bit i is set where a[i] == b[i].
inline std::uint32_t equal_bits(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }

inline __m256 lower_half(Vec x) { return _mm512_castps512_ps256(x); }
inline __m256 upper_half(Vec x) { return _mm512_extractf32x8_ps(x, 1); }

// Lanes i and i + 8, then i + 4, i + 2, i + 1.
inline float sum(Vec x) {
  const __m256 eight = _mm256_add_ps(lower_half(x), upper_half(x));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lane(Vec x) {
  const __m256 eight = _mm256_max_ps(lower_half(x), upper_half(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// 16 lanes as raw bits: 32 bits each.
inline Vec load_units(const std::byte* from) { return _mm512_loadu_ps(from); }
inline Vec splat_unit(const std::byte* from) {
  int bits;
  __builtin_memcpy(&bits, from, 4);
  return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}
inline Vec and_bits(Vec x, std::uint32_t bits) {
  return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits))));
}
inline Vec shift_up_16(Vec x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16));
}

// Rounded to bfloat16 (ties to even, NaN stays NaN), in the upper half of each lane.
inline Vec round_bf16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const Mask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, bias), nan, quiet);
  return and_bits(_mm512_castsi512_ps(rounded), 0xffff0000u);
}
inline void store_bf16(std::uint16_t* to, Vec x) {
  const __m512i high = _mm512_srli_epi32(_mm512_castps_si512(round_bf16(x)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_cvtepi32_epi16(high));
}
inline Vec load_bf16(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// Sixteen doubles, lane by lane.
struct DoubleVec {
  __m512d lower;
  __m512d upper;
};

inline DoubleVec double_zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
inline DoubleVec add(DoubleVec a, Vec b) {
  return {_mm512_add_pd(a.lower, _mm512_cvtps_pd(lower_half(b))),
          _mm512_add_pd(a.upper, _mm512_cvtps_pd(upper_half(b)))};
}
inline void store(double* to, DoubleVec x) {
  _mm512_storeu_pd(to, x.lower);
  _mm512_storeu_pd(to + 8, x.upper);
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
