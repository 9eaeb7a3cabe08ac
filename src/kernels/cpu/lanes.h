#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// For helpers that take and give values in registers. Left to the compiler's limits of growth, a
// source with many weight kinds had them called, with every value passed through memory: a
// quarter of the speed.
#define DRAFTHOUSE_INLINE [[gnu::always_inline]] inline

// The 16 outputs of a column block as one value of this ISA: Lanes holds floats, Words 32-bit
// integers. Everything is local to the including source (see isa_ops.h).
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Names the i-th vector of a Lanes or Words.
template <int i>
struct At {};

#if defined(__AVX512F__)

using Lanes = __m512;
using Words = __m512i;

inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Lanes a) { _mm512_storeu_ps(to, a); }
inline Lanes splat(const float* from) { return _mm512_set1_ps(*from); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }

inline Words load_words(const std::byte* from) { return _mm512_loadu_si512(from); }
inline Words splat_word(const std::byte* from) {
  std::int32_t word;
  std::memcpy(&word, from, sizeof word);
  return _mm512_set1_epi32(word);
}
inline Lanes load_halves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Lanes load_bf16s(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Lanes load_int8s(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
inline Lanes to_float(Words a) { return _mm512_cvtepi32_ps(a); }
// The bfloat16 in the low and in the high half of each word.
inline Lanes bf16_low(Words a) { return _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)); }
inline Lanes bf16_high(Words a) {
  return _mm512_castsi512_ps(_mm512_and_si512(a, _mm512_set1_epi32(-65536)));
}
// Each word shifted right by `shift`, or left by −shift; each byte masked.
template <int shift>
Words shifted(Words a) {
  if constexpr (shift >= 0) {
    return _mm512_srli_epi32(a, shift);
  } else {
    return _mm512_slli_epi32(a, -shift);
  }
}
template <int mask>
Words masked(Words a) {
  return _mm512_and_si512(a, _mm512_set1_epi8(mask));
}
inline Words either(Words a, Words b) { return _mm512_or_si512(a, b); }
// Bits [shift, shift + bits) of each word, minus `offset`.
template <int shift, int bits, int offset>
Words field(Words a) {
  const Words raw =
      _mm512_and_si512(_mm512_srli_epi32(a, shift), _mm512_set1_epi32((1 << bits) - 1));
  return _mm512_sub_epi32(raw, _mm512_set1_epi32(offset));
}

#elif defined(__AVX2__)

struct Lanes {
  __m256 low, high;
};
struct Words {
  __m256i low, high;
};

template <int i>
__m256& vector_of(Lanes& a) {
  return i == 0 ? a.low : a.high;
}
template <int i>
__m256 vector_of(const Lanes& a) {
  return i == 0 ? a.low : a.high;
}
template <int i>
__m256i vector_of(const Words& a) {
  return i == 0 ? a.low : a.high;
}

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, Lanes a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
inline Lanes splat(const float* from) {
  const __m256 a = _mm256_broadcast_ss(from);
  return {a, a};
}
inline Lanes add(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes mul(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

inline Words load_words(const std::byte* from) {
  const auto* vectors = reinterpret_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
}
inline Words splat_word(const std::byte* from) {
  std::int32_t word;
  std::memcpy(&word, from, sizeof word);
  const __m256i a = _mm256_set1_epi32(word);
  return {a, a};
}
inline __m256 mul(__m256 a, __m256 b) { return _mm256_mul_ps(a, b); }
inline __m256 fma(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256 to_float(__m256i a) { return _mm256_cvtepi32_ps(a); }
inline Lanes load_halves(const std::byte* from) {
  const auto* vectors = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtph_ps(_mm_loadu_si128(vectors)), _mm256_cvtph_ps(_mm_loadu_si128(vectors + 1))};
}
inline __m256 bf16s_of(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes load_bf16s(const std::byte* from) {
  const auto* vectors = reinterpret_cast<const __m128i*>(from);
  return {bf16s_of(_mm_loadu_si128(vectors)), bf16s_of(_mm_loadu_si128(vectors + 1))};
}
inline Lanes load_int8s(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Lanes to_float(Words a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
inline Lanes bf16_low(Words a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(a.low, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(a.high, 16))};
}
inline Lanes bf16_high(Words a) {
  const __m256i mask = _mm256_set1_epi32(-65536);
  return {_mm256_castsi256_ps(_mm256_and_si256(a.low, mask)),
          _mm256_castsi256_ps(_mm256_and_si256(a.high, mask))};
}
template <int shift>
Words shifted(Words a) {
  if constexpr (shift >= 0) {
    return {_mm256_srli_epi32(a.low, shift), _mm256_srli_epi32(a.high, shift)};
  } else {
    return {_mm256_slli_epi32(a.low, -shift), _mm256_slli_epi32(a.high, -shift)};
  }
}
template <int mask>
Words masked(Words a) {
  const __m256i bits = _mm256_set1_epi8(mask);
  return {_mm256_and_si256(a.low, bits), _mm256_and_si256(a.high, bits)};
}
inline Words either(Words a, Words b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int shift, int bits, int offset>
__m256i field_of(__m256i a) {
  const __m256i raw =
      _mm256_and_si256(_mm256_srli_epi32(a, shift), _mm256_set1_epi32((1 << bits) - 1));
  return _mm256_sub_epi32(raw, _mm256_set1_epi32(offset));
}
template <int shift, int bits, int offset>
Words field(Words a) {
  return {field_of<shift, bits, offset>(a.low), field_of<shift, bits, offset>(a.high)};
}

#else

struct Lanes {
  float at[16];
};
struct Words {
  std::uint32_t at[16];
};

inline Lanes zero() { return Lanes{}; }
inline Lanes load(const float* from) {
  Lanes a;
  std::memcpy(&a, from, sizeof a);
  return a;
}
inline void store(float* to, Lanes a) { std::memcpy(to, &a, sizeof a); }
inline Lanes splat(const float* from) {
  Lanes a;
  for (float& x : a.at) x = *from;
  return a;
}
inline Lanes add(Lanes a, Lanes b) {
  for (int i = 0; i < 16; ++i) a.at[i] += b.at[i];
  return a;
}
inline Lanes mul(Lanes a, Lanes b) {
  for (int i = 0; i < 16; ++i) a.at[i] *= b.at[i];
  return a;
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  for (int i = 0; i < 16; ++i) {
#if defined(__FP_FAST_FMAF)
    a.at[i] = __builtin_fmaf(a.at[i], b.at[i], c.at[i]);
#else
    // Without the instruction fma is a slow library call. The product is exact in double, so this
    // differs from it only where rounding twice does.
    a.at[i] = static_cast<float>(static_cast<double>(a.at[i]) * static_cast<double>(b.at[i]) +
                                 static_cast<double>(c.at[i]));
#endif
  }
  return a;
}

inline Words load_words(const std::byte* from) {
  Words a;
  std::memcpy(&a, from, sizeof a);
  return a;
}
inline Words splat_word(const std::byte* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  Words a;
  for (std::uint32_t& x : a.at) x = word;
  return a;
}
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline float half_of(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Exact for denormals too: the scaling moves the exponent only.
  const float value = float_of(magnitude << 13) * 0x1p112f;
  return float_of(sign | __builtin_bit_cast(std::uint32_t, value));
}
inline Lanes load_halves(const std::byte* from) {
  std::uint16_t halves[16];
  std::memcpy(halves, from, sizeof halves);
  Lanes a;
  for (int i = 0; i < 16; ++i) a.at[i] = half_of(halves[i]);
  return a;
}
inline Lanes load_bf16s(const std::byte* from) {
  std::uint16_t bits[16];
  std::memcpy(bits, from, sizeof bits);
  Lanes a;
  for (int i = 0; i < 16; ++i) a.at[i] = float_of(static_cast<std::uint32_t>(bits[i]) << 16);
  return a;
}
inline Lanes load_int8s(const std::byte* from) {
  Lanes a;
  for (int i = 0; i < 16; ++i) a.at[i] = static_cast<float>(static_cast<std::int8_t>(from[i]));
  return a;
}
inline Lanes to_float(Words a) {
  Lanes b;
  for (int i = 0; i < 16; ++i) b.at[i] = static_cast<float>(static_cast<std::int32_t>(a.at[i]));
  return b;
}
inline Lanes bf16_low(Words a) {
  Lanes b;
  for (int i = 0; i < 16; ++i) b.at[i] = float_of(a.at[i] << 16);
  return b;
}
inline Lanes bf16_high(Words a) {
  Lanes b;
  for (int i = 0; i < 16; ++i) b.at[i] = float_of(a.at[i] & 0xffff0000u);
  return b;
}
template <int shift>
Words shifted(Words a) {
  for (std::uint32_t& x : a.at) {
    if constexpr (shift >= 0) {
      x >>= shift;
    } else {
      x <<= -shift;
    }
  }
  return a;
}
template <int mask>
Words masked(Words a) {
  for (std::uint32_t& x : a.at) x &= static_cast<std::uint32_t>(mask) * 0x01010101u;
  return a;
}
inline Words either(Words a, Words b) {
  for (int i = 0; i < 16; ++i) a.at[i] |= b.at[i];
  return a;
}
template <int shift, int bits, int offset>
Words field(Words a) {
  for (std::uint32_t& x : a.at) {
    x = ((x >> shift) & ((1u << bits) - 1u)) - static_cast<std::uint32_t>(offset);
  }
  return a;
}

#endif

#if defined(__AVX512F__) || !defined(__AVX2__)

// Lanes and Words are one vector each.
template <int i>
Lanes& vector_of(Lanes& a) {
  return a;
}
template <int i>
Lanes vector_of(const Lanes& a) {
  return a;
}

#endif

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
