#pragma once

#include "kernels/cpu/matmul_driver.h"

// Exact integer dot products of one 32-input group: a column block's codes by the codes of `rows`
// activation rows.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// An activation group: units `stride` bytes apart, rows side by side within a unit.
struct ActGroup {
  const std::byte* at;
  std::size_t stride;

  const std::byte* codes(int quad, int row) const { return at + quad * stride + row * 4; }
  const float* scale(int row) const {
    return reinterpret_cast<const float*>(at + 8 * stride + row * 4);
  }
  const std::byte* sum(int row) const { return at + 9 * stride + row * 4; }
};

constexpr int kQuads = kGroupInputs / 4;
constexpr std::size_t kQuadBytes = kLanes * 4;

// How a group's codes are stored; a stored code stands for code − offset.
struct Q8Codes {
  static constexpr std::size_t kBytes = kQuads * kQuadBytes;
  static constexpr int kOffset = 128;
  static constexpr int kOffsetLog2 = 7;
};
struct Q4Codes {
  static constexpr std::size_t kBytes = kQuads / 2 * kQuadBytes;
};
struct Q4_0Codes : Q4Codes {
  static constexpr int kOffset = 8;
  static constexpr int kOffsetLog2 = 3;
};
struct Q4_1Codes : Q4Codes {
  static constexpr int kOffset = 0;
  static constexpr int kOffsetLog2 = 0;
};

// group_sums<Codes, rows>(codes, x, finish) calls finish(row, sums) once per row, ascending.

#if defined(__AVX512F__)

inline __m512i low_nibbles(__m512i a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }

// sums += products of four codes by a row's four inputs. The compiler would load the inputs into a
// register of their own first, which costs an instruction of two.
inline void add_products(__m512i& sums, __m512i weights, const std::byte* input) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums)
          : "v"(weights), "m"(*reinterpret_cast<const std::int32_t*>(input)));
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  __m512i quads[kQuads];
  if constexpr (Codes::kOffset == 128) {
#pragma GCC unroll 16
    for (int i = 0; i < kQuads; ++i) quads[i] = load_words(codes + i * kQuadBytes);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kQuads; i += 2) {
      const __m512i both = load_words(codes + i / 2 * kQuadBytes);
      quads[i] = low_nibbles(both);
      quads[i + 1] = low_nibbles(_mm512_srli_epi16(both, 4));
    }
  }
  // Each row's sum starts with −offset × the sum of its codes, made for all rows at once.
  alignas(64) std::int32_t starts[16];
  if constexpr (Codes::kOffset != 0) {
    const __m512i sums = _mm512_maskz_loadu_epi32((1u << rows) - 1u, x.sum(0));
    _mm512_store_si512(starts, _mm512_sub_epi32(_mm512_setzero_si512(),
                                                _mm512_slli_epi32(sums, Codes::kOffsetLog2)));
  }
  // Left alone, the compiler would take the starts out of a register again, by shuffles.
  if constexpr (Codes::kOffset != 0) __asm__("" : "+m"(starts));
  // A row's eight products wait for each other, so a few rows take turns: in program order, because
  // a whole group of 16 rows is more than a CPU looks ahead.
  constexpr int kTogether = 4;
#pragma GCC unroll 16
  for (int first = 0; first < rows; first += kTogether) {
    const int last = first + kTogether < rows ? first + kTogether : rows;
    __m512i sums[kTogether];
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) {
      sums[r - first] =
          Codes::kOffset != 0 ? _mm512_set1_epi32(starts[r]) : _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (int i = 0; i < kQuads; ++i) {
#pragma GCC unroll 16
      for (int r = first; r < last; ++r) {
        add_products(sums[r - first], quads[i], x.codes(i, r));
      }
    }
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) finish(r, sums[r - first]);
  }
}

#elif defined(__AVX2__)

inline __m256i splat_half(const std::byte* from) { return splat_word(from).low; }

inline Words quad_of(const std::byte* codes, int quad, const Q8Codes&) {
  return load_words(codes + quad * kQuadBytes);
}
inline Words quad_of(const std::byte* codes, int quad, const Q4Codes&) {
  const Words both = load_words(codes + quad / 2 * kQuadBytes);
  const __m256i mask = _mm256_set1_epi8(15);
  if (quad % 2 == 0) return {_mm256_and_si256(both.low, mask), _mm256_and_si256(both.high, mask)};
  return {_mm256_and_si256(_mm256_srli_epi16(both.low, 4), mask),
          _mm256_and_si256(_mm256_srli_epi16(both.high, 4), mask)};
}

// −offset × the sum of a row's codes.
template <class Codes>
inline __m256i start_of(const ActGroup& x, int row) {
  if constexpr (Codes::kOffset == 0) return _mm256_setzero_si256();
  return _mm256_sub_epi32(_mm256_setzero_si256(),
                          _mm256_slli_epi32(splat_half(x.sum(row)), Codes::kOffsetLog2));
}

#if defined(__AVXVNNI__)

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  Words sums[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i start = start_of<Codes>(x, r);
    sums[r] = {start, start};
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQuads; ++i) {
    const Words weights = quad_of(codes, i, Codes{});
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m256i inputs = splat_half(x.codes(i, r));
      sums[r].low = _mm256_dpbusd_avx_epi32(sums[r].low, weights.low, inputs);
      sums[r].high = _mm256_dpbusd_avx_epi32(sums[r].high, weights.high, inputs);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) finish(r, sums[r]);
}

#else

// Sums of pairs are 16 bits wide here. |−128| · 127 · 2 fits, with the sign moved to the input;
// code + 128 would not.
template <class Codes, int rows, class Finish>
inline void group_sums_of(const Q8Codes&, const std::byte* codes, const ActGroup& x,
                          const Finish& finish) {
  const __m256i offset = _mm256_set1_epi8(-128);
  const __m256i ones = _mm256_set1_epi16(1);
  Words sums[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sums[r] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  // Unrolled, the compiler would gather the sums of several quads and spill them.
#pragma GCC unroll 1
  for (int i = 0; i < kQuads; ++i) {
    const Words stored = quad_of(codes, i, Codes{});
    const Words weights{_mm256_xor_si256(stored.low, offset),
                        _mm256_xor_si256(stored.high, offset)};
    const Words sizes{_mm256_abs_epi8(weights.low), _mm256_abs_epi8(weights.high)};
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m256i inputs = splat_half(x.codes(i, r));
      const __m256i low = _mm256_maddubs_epi16(sizes.low, _mm256_sign_epi8(inputs, weights.low));
      const __m256i high = _mm256_maddubs_epi16(sizes.high, _mm256_sign_epi8(inputs, weights.high));
      sums[r].low = _mm256_add_epi32(sums[r].low, _mm256_madd_epi16(low, ones));
      sums[r].high = _mm256_add_epi32(sums[r].high, _mm256_madd_epi16(high, ones));
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) finish(r, sums[r]);
}

inline void add_products(__m256i& sum, __m256i weights, __m256i inputs, bool first) {
  const __m256i products = _mm256_maddubs_epi16(weights, inputs);
  sum = first ? products : _mm256_add_epi16(sum, products);
  // Here and in no other order: the compiler would gather products and spill them.
  __asm__ volatile("" : "+x"(sum));
}

// 15 · 127 · 2 · 8 quads fits 16 bits.
template <class Codes, int rows, class Finish>
inline void group_sums_of(const Q4Codes&, const std::byte* codes, const ActGroup& x,
                          const Finish& finish) {
  __m256i low[rows];
  __m256i high[rows];
#pragma GCC unroll 16
  for (int i = 0; i < kQuads; ++i) {
    const Words weights = quad_of(codes, i, Codes{});
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const __m256i inputs = splat_half(x.codes(i, r));
      add_products(low[r], weights.low, inputs, i == 0);
      add_products(high[r], weights.high, inputs, i == 0);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i start = start_of<Codes>(x, r);
    finish(r, Words{_mm256_add_epi32(start, _mm256_madd_epi16(low[r], ones)),
                    _mm256_add_epi32(start, _mm256_madd_epi16(high[r], ones))});
  }
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  group_sums_of<Codes, rows>(Codes{}, codes, x, finish);
}

#endif

#else

template <class Codes>
inline std::int32_t code_of(const std::byte* codes, int quad, std::uint32_t at) {
  if constexpr (Codes::kOffset == 128) {
    return static_cast<std::int32_t>(codes[quad * kQuadBytes + at]) - Codes::kOffset;
  } else {
    const auto both = static_cast<std::int32_t>(codes[quad / 2 * kQuadBytes + at]);
    return (quad % 2 == 0 ? both & 15 : both >> 4) - Codes::kOffset;
  }
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  std::int32_t sums[rows][kLanes] = {};
#pragma GCC unroll 16
  for (int i = 0; i < kQuads; ++i) {
    std::int16_t weights[4][kLanes];
    for (std::uint32_t at = 0; at < kQuadBytes; ++at) {
      weights[at % 4][at / 4] = static_cast<std::int16_t>(code_of<Codes>(codes, i, at));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      for (std::uint32_t j = 0; j < 4; ++j) {
        const auto input = static_cast<std::int16_t>(
            static_cast<std::int8_t>(x.codes(i, r)[j]));
        for (std::uint32_t o = 0; o < kLanes; ++o) sums[r][o] += weights[j][o] * input;
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    Words sum;
    std::memcpy(&sum, sums[r], sizeof sum);
    finish(r, sum);
  }
}

#endif

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
