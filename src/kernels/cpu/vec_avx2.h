#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kLanes = 16;

struct Vec {
  __m256 lower;
  __m256 upper;
};
struct Mask {
  __m256i lower;
  __m256i upper;
};

inline Mask mask_of(std::uint32_t bits) {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i high = _mm256_slli_epi32(low, 8);
  return {_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low),
          _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high)};
}

inline Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, Vec x) {
  _mm256_storeu_ps(to, x.lower);
  _mm256_storeu_ps(to + 8, x.upper);
}
// yes where the mask is set, else no.
inline Vec select(Mask mask, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.lower, yes.lower, _mm256_castsi256_ps(mask.lower)),
          _mm256_blendv_ps(no.upper, yes.upper, _mm256_castsi256_ps(mask.upper))};
}
// Lanes outside the mask become `fill`; their memory is not touched.
inline Vec load(const float* from, Mask mask, Vec fill) {
  const Vec in = {_mm256_maskload_ps(from, mask.lower), _mm256_maskload_ps(from + 8, mask.upper)};
  return select(mask, in, fill);
}
inline void store(float* to, Mask mask, Vec x) {
  _mm256_maskstore_ps(to, mask.lower, x.lower);
  _mm256_maskstore_ps(to + 8, mask.upper, x.upper);
}

inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lower, b.lower), _mm256_add_ps(a.upper, b.upper)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lower, b.lower), _mm256_sub_ps(a.upper, b.upper)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lower, b.lower), _mm256_mul_ps(a.upper, b.upper)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lower, b.lower), _mm256_div_ps(a.upper, b.upper)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lower, b.lower, c.lower), _mm256_fmadd_ps(a.upper, b.upper, c.upper)};
}
// a > b ? a : b and a < b ? a : b, so b where either is NaN.
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lower, b.lower), _mm256_max_ps(a.upper, b.upper)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lower, b.lower), _mm256_min_ps(a.upper, b.upper)};
}
// To the nearest integer, ties to even.
inline Vec round(Vec x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lower, kMode), _mm256_round_ps(x.upper, kMode)};
}

inline __m256 times_power_of_two(__m256 x, __m256 n) {
  // In two factors, so that the ends of the range are reached with one rounding.
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(a)), _mm256_castsi256_ps(b));
}
// x · 2^n for an integral n, with one rounding.
inline Vec times_power_of_two(Vec x, Vec n) {
  return {times_power_of_two(x.lower, n.lower), times_power_of_two(x.upper, n.upper)};
}
// Bit i is set where a[i] == b[i].
inline std::uint32_t equal_bits(Vec a, Vec b) {
  const int lower = _mm256_movemask_ps(_mm256_cmp_ps(a.lower, b.lower, _CMP_EQ_OQ));
  const int upper = _mm256_movemask_ps(_mm256_cmp_ps(a.upper, b.upper, _CMP_EQ_OQ));
  return static_cast<std::uint32_t>(lower | (upper << 8));
}

// Lanes i and i + 8, then i + 4, i + 2, i + 1.
inline float sum(Vec x) {
  const __m256 eight = _mm256_add_ps(x.lower, x.upper);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lane(Vec x) {
  const __m256 eight = _mm256_max_ps(x.lower, x.upper);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// 16 lanes as raw bits: 32 bits each.
inline Vec load_units(const std::byte* from) {
  const __m256i lower = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
  const __m256i upper = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + 32));
  return {_mm256_castsi256_ps(lower), _mm256_castsi256_ps(upper)};
}
inline Vec splat_unit(const std::byte* from) {
  int bits;
  __builtin_memcpy(&bits, from, 4);
  const __m256 all = _mm256_castsi256_ps(_mm256_set1_epi32(bits));
  return {all, all};
}
inline Vec and_bits(Vec x, std::uint32_t bits) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(bits)));
  return {_mm256_and_ps(x.lower, mask), _mm256_and_ps(x.upper, mask)};
}
inline Vec shift_up_16(Vec x) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.lower), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x.upper), 16))};
}

inline __m256 round_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256 rounded = _mm256_castsi256_ps(_mm256_add_epi32(bits, bias));
  const __m256 quiet = _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
  return _mm256_blendv_ps(rounded, quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
// Rounded to bfloat16 (ties to even, NaN stays NaN), in the upper half of each lane.
inline Vec round_bf16(Vec x) {
  return and_bits({round_bf16(x.lower), round_bf16(x.upper)}, 0xffff0000u);
}
inline void store_bf16(std::uint16_t* to, Vec x) {
  const Vec rounded = round_bf16(x);
  const __m256i lower = _mm256_srli_epi32(_mm256_castps_si256(rounded.lower), 16);
  const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(rounded.upper), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lower, upper), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), packed);
}
inline Vec load_bf16(const std::byte* from) {
  const __m128i lower = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
  const __m128i upper = _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from + 16));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(lower), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16))};
}

// Sixteen doubles, lane by lane.
struct DoubleVec {
  __m256d part[4];
};

inline DoubleVec double_zero() {
  const __m256d zero = _mm256_setzero_pd();
  return {{zero, zero, zero, zero}};
}
inline DoubleVec add(DoubleVec a, Vec b) {
  const __m256d b0 = _mm256_cvtps_pd(_mm256_castps256_ps128(b.lower));
  const __m256d b1 = _mm256_cvtps_pd(_mm256_extractf128_ps(b.lower, 1));
  const __m256d b2 = _mm256_cvtps_pd(_mm256_castps256_ps128(b.upper));
  const __m256d b3 = _mm256_cvtps_pd(_mm256_extractf128_ps(b.upper, 1));
  return {{_mm256_add_pd(a.part[0], b0), _mm256_add_pd(a.part[1], b1), _mm256_add_pd(a.part[2], b2),
           _mm256_add_pd(a.part[3], b3)}};
}
inline void store(double* to, DoubleVec x) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(to + 4 * i, x.part[i]);
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
