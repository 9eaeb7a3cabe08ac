#pragma once

#include "kernels/cpu/grouped_weights.h"
#include "kernels/cpu/matmul_driver.h"

// Exact integer dot products of one 32-input group: a column block's codes by the codes of `rows`
// activation rows, of the whole group or of each half.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// An activation group: units `stride` bytes apart, rows side by side within a unit.
struct ActGroup {
  const std::byte* at;
  std::size_t stride;

  const std::byte* codes(int quad, int row) const {
    return at + static_cast<std::size_t>(quad) * stride + row * 4;
  }
  const float* scale(int row) const {
    return reinterpret_cast<const float*>(at + 8 * stride + row * 4);
  }
  const std::byte* sum(int row) const { return at + 9 * stride + row * 4; }
};

constexpr int log2_of(std::int32_t power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// How a group's codes are stored; a stored code stands for code − offset.
template <Dtype kind>
struct Codes {
  static constexpr std::uint32_t kBits = grouped_kind(kind).bits;
  static constexpr int kOffset = grouped_kind(kind).offset;
  static constexpr int kOffsetLog2 = log2_of(kOffset);
  // Parts of the group that have sums of their own.
  static constexpr int kParts = subgroups(grouped_kind(kind).scales);
  static constexpr int kPartQuads = kQuads / kParts;
};

// group_sums<Codes, rows>(codes, x, finish) calls finish(row, part, sums) once per row and part,
// all rows of the first part before the second.

// Of the first half: sums of codes, by row.
#if defined(__AVX512F__)
template <int rows>
inline Words first_half_sums(const ActGroup& x) {
  constexpr __mmask16 kMask = static_cast<__mmask16>((1u << rows) - 1u);
  Words sums = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int quad = 0; quad < kQuads / 2; ++quad) {
    const Words inputs = _mm512_maskz_loadu_epi32(kMask, x.codes(quad, 0));
    sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), inputs);
  }
  return sums;
}
#else
inline std::int32_t first_half_sum(const ActGroup& x, int row) {
  std::int32_t sum = 0;
  for (int quad = 0; quad < kQuads / 2; ++quad) {
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int8_t>(x.codes(quad, row)[i]);
  }
  return sum;
}
#endif

#if defined(__AVX512F__)

// sums += products of four codes by a row's four inputs. The compiler would load the inputs into a
// register of their own first, which costs an instruction of two.
inline void add_products(__m512i& sums, __m512i weights, const std::byte* input) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums)
          : "v"(weights), "m"(*reinterpret_cast<const std::int32_t*>(input)));
}

// `input_sums`: of the part's inputs, by row; used where codes have an offset.
template <class Codes, int rows, int part, class Finish>
inline void part_sums(const std::byte* codes, const ActGroup& x, __m512i input_sums,
                      const Finish& finish) {
  constexpr int kFirst = part * Codes::kPartQuads;
  constexpr std::uint32_t kBits = Codes::kBits;
  __m512i quads[Codes::kPartQuads];
  quads[0] = quad_at<kBits, kFirst>(codes);
  quads[1] = quad_at<kBits, kFirst + 1>(codes);
  quads[2] = quad_at<kBits, kFirst + 2>(codes);
  quads[3] = quad_at<kBits, kFirst + 3>(codes);
  if constexpr (Codes::kPartQuads == kQuads) {
    quads[4] = quad_at<kBits, 4>(codes);
    quads[5] = quad_at<kBits, 5>(codes);
    quads[6] = quad_at<kBits, 6>(codes);
    quads[7] = quad_at<kBits, 7>(codes);
  }
  // Each row's sum starts with −offset × the sum of its codes, made for all rows at once.
  alignas(64) std::int32_t starts[16];
  if constexpr (Codes::kOffset != 0) {
    _mm512_store_si512(starts, _mm512_sub_epi32(_mm512_setzero_si512(),
                                                _mm512_slli_epi32(input_sums, Codes::kOffsetLog2)));
    // Left alone, the compiler would take the starts out of a register again, by shuffles.
    __asm__("" : "+m"(starts));
  }
  // A row's products wait for each other, so a few rows take turns: in program order, because a
  // whole group of 16 rows is more than a CPU looks ahead.
  constexpr int kTogether = 4;
#pragma GCC unroll 16
  for (int first = 0; first < rows; first += kTogether) {
    const int last = first + kTogether < rows ? first + kTogether : rows;
    __m512i sums[kTogether];
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) {
      sums[r - first] = Codes::kOffset != 0 ? _mm512_set1_epi32(starts[r]) : _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (int i = 0; i < Codes::kPartQuads; ++i) {
#pragma GCC unroll 16
      for (int r = first; r < last; ++r) {
        add_products(sums[r - first], quads[i], x.codes(kFirst + i, r));
      }
    }
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) finish(r, part, sums[r - first]);
  }
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  Words sums = _mm512_setzero_si512();
  if constexpr (Codes::kOffset != 0) sums = _mm512_maskz_loadu_epi32((1u << rows) - 1u, x.sum(0));
  if constexpr (Codes::kParts == 1) {
    part_sums<Codes, rows, 0>(codes, x, sums, finish);
  } else {
    Words first = _mm512_setzero_si512();
    if constexpr (Codes::kOffset != 0) first = first_half_sums<rows>(x);
    part_sums<Codes, rows, 0>(codes, x, first, finish);
    part_sums<Codes, rows, 1>(codes, x, _mm512_sub_epi32(sums, first), finish);
  }
}

#elif defined(__AVX2__)

inline __m256i splat_half(const std::byte* from) { return splat_word(from).low; }

// Where the offset is not taken from the sum of codes at the start, it is taken from the codes.
#if defined(__AVXVNNI__)
template <class Codes>
constexpr bool kSigned = Codes::kParts == 2 && Codes::kOffset != 0;
template <class Codes>
constexpr int kStartOffset = kSigned<Codes> ? 0 : Codes::kOffset;
#else
// Sums of pairs are 16 bits wide here: |−128| · 127 · 2 fits, with the sign moved to the input;
// code + 128 would not.
template <class Codes>
constexpr bool kSigned = Codes::kBits == 8 || (Codes::kParts == 2 && Codes::kOffset != 0);
template <class Codes>
constexpr int kSignOffset = Codes::kBits == 8 ? 128 : Codes::kOffset;
template <class Codes>
constexpr int kStartOffset = kSigned<Codes> ? Codes::kOffset - kSignOffset<Codes> : Codes::kOffset;
#endif

// −offset × the sum of a row's codes.
template <class Codes>
inline __m256i start_of(const ActGroup& x, int row) {
  constexpr int kOffset = kStartOffset<Codes>;
  if constexpr (kOffset == 0) {
    return _mm256_setzero_si256();
  } else if constexpr (kOffset < 0) {
    return _mm256_slli_epi32(splat_half(x.sum(row)), log2_of(-kOffset));
  } else {
    return _mm256_sub_epi32(_mm256_setzero_si256(),
                            _mm256_slli_epi32(splat_half(x.sum(row)), log2_of(kOffset)));
  }
}

// A quad of weights as an unsigned factor, and what gives its sign to the input.
struct QuadWeights {
  Words sizes;
  Words signs;
};
template <class Codes, int quad>
inline QuadWeights quad_weights(const std::byte* codes) {
  const Words stored = quad_at<Codes::kBits, quad>(codes);
  if constexpr (!kSigned<Codes>) return {stored, stored};
  const __m256i offset =
      _mm256_set1_epi8(static_cast<char>(Codes::kBits == 8 ? 128 : Codes::kOffset));
  const Words weights{_mm256_sub_epi8(stored.low, offset), _mm256_sub_epi8(stored.high, offset)};
  return {{_mm256_abs_epi8(weights.low), _mm256_abs_epi8(weights.high)}, weights};
}
template <class Codes>
inline __m256i signed_inputs(__m256i inputs, __m256i signs) {
  if constexpr (kSigned<Codes>) return _mm256_sign_epi8(inputs, signs);
  return inputs;
}

#if defined(__AVXVNNI__)

template <class Codes, int rows, int quad>
inline void add_quad(const std::byte* codes, const ActGroup& x, Words (&sums)[rows]) {
  const QuadWeights w = quad_weights<Codes, quad>(codes);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i inputs = splat_half(x.codes(quad, r));
    sums[r].low = _mm256_dpbusd_avx_epi32(sums[r].low, w.sizes.low,
                                          signed_inputs<Codes>(inputs, w.signs.low));
    sums[r].high = _mm256_dpbusd_avx_epi32(sums[r].high, w.sizes.high,
                                           signed_inputs<Codes>(inputs, w.signs.high));
  }
}

template <class Codes, int rows, int first>
inline void add_four(const std::byte* codes, const ActGroup& x, Words (&sums)[rows]) {
  add_quad<Codes, rows, first>(codes, x, sums);
  add_quad<Codes, rows, first + 1>(codes, x, sums);
  add_quad<Codes, rows, first + 2>(codes, x, sums);
  add_quad<Codes, rows, first + 3>(codes, x, sums);
}

#else

// 16-bit sums of products that fit them, for at most four quads; half as many bits, eight.
//   bits 4: 15 · 127 · 2 · 8      bits 5: 31 · 127 · 2 · 4      bits 6: 32 · 127 · 2 · 4
template <int rows>
struct ShortSums {
  __m256i low[rows];
  __m256i high[rows];
};

inline void add_products(__m256i& sum, __m256i weights, __m256i inputs, bool first) {
  const __m256i products = _mm256_maddubs_epi16(weights, inputs);
  sum = first ? products : _mm256_add_epi16(sum, products);
  // Here and in no other order: the compiler would gather products and spill them.
  __asm__ volatile("" : "+x"(sum));
}

template <class Codes, int rows, int quad, bool first>
inline void add_short(const std::byte* codes, const ActGroup& x, ShortSums<rows>& sums) {
  const QuadWeights w = quad_weights<Codes, quad>(codes);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i inputs = splat_half(x.codes(quad, r));
    add_products(sums.low[r], w.sizes.low, signed_inputs<Codes>(inputs, w.signs.low), first);
    add_products(sums.high[r], w.sizes.high, signed_inputs<Codes>(inputs, w.signs.high), first);
  }
}

template <class Codes, int rows, int from, bool first>
inline void add_four_short(const std::byte* codes, const ActGroup& x, ShortSums<rows>& sums) {
  add_short<Codes, rows, from, first>(codes, x, sums);
  add_short<Codes, rows, from + 1, false>(codes, x, sums);
  add_short<Codes, rows, from + 2, false>(codes, x, sums);
  add_short<Codes, rows, from + 3, false>(codes, x, sums);
}

template <int rows>
inline void widen(const ShortSums<rows>& from, Words (&sums)[rows]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    sums[r].low = _mm256_add_epi32(sums[r].low, _mm256_madd_epi16(from.low[r], ones));
    sums[r].high = _mm256_add_epi32(sums[r].high, _mm256_madd_epi16(from.high[r], ones));
  }
}

template <class Codes, int rows, int first>
inline void add_four(const std::byte* codes, const ActGroup& x, Words (&sums)[rows]) {
  ShortSums<rows> part;
  add_four_short<Codes, rows, first, true>(codes, x, part);
  widen(part, sums);
}

// Eight bits: every quad is widened by itself.
template <class Codes, int rows>
inline void add_wide(const std::byte* codes, const ActGroup& x, Words (&sums)[rows]) {
  const __m256i offset = _mm256_set1_epi8(-128);
  const __m256i ones = _mm256_set1_epi16(1);
  // Unrolled, the compiler would gather the sums of several quads and spill them.
#pragma GCC unroll 1
  for (int i = 0; i < kQuads; ++i) {
    const Words stored = load_words(codes + i * kQuadBytes);
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
}

#endif

template <class Codes, int rows, int part, class Finish>
inline void part_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  Words sums[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i start = start_of<Codes>(x, r);
    sums[r] = {start, start};
  }
#if !defined(__AVXVNNI__)
  if constexpr (Codes::kBits == 8) {
    add_wide<Codes>(codes, x, sums);
  } else if constexpr (Codes::kBits == 4 && Codes::kParts == 1) {
    ShortSums<rows> all;
    add_four_short<Codes, rows, 0, true>(codes, x, all);
    add_four_short<Codes, rows, 4, false>(codes, x, all);
    widen(all, sums);
  } else
#endif
  {
    add_four<Codes, rows, part * 4>(codes, x, sums);
    if constexpr (Codes::kParts == 1) add_four<Codes, rows, 4>(codes, x, sums);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) finish(r, part, sums[r]);
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  part_sums<Codes, rows, 0>(codes, x, finish);
  if constexpr (Codes::kParts == 2) part_sums<Codes, rows, 1>(codes, x, finish);
}

#else

template <class Codes, int rows>
inline void add_quad(const Words& stored, const ActGroup& x, int quad,
                     std::int32_t (&sums)[rows][kLanes]) {
  std::uint8_t bytes[kQuadBytes];
  std::memcpy(bytes, &stored, sizeof bytes);
  std::int16_t weights[4][kLanes];
  for (std::uint32_t at = 0; at < kQuadBytes; ++at) {
    weights[at % 4][at / 4] = static_cast<std::int16_t>(bytes[at] - Codes::kOffset);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      const auto input = static_cast<std::int16_t>(static_cast<std::int8_t>(x.codes(quad, r)[j]));
      for (std::uint32_t o = 0; o < kLanes; ++o) sums[r][o] += weights[j][o] * input;
    }
  }
}

template <class Codes, int rows, class Finish>
inline void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  for (int part = 0; part < Codes::kParts; ++part) {
    std::int32_t sums[rows][kLanes] = {};
    for (int i = part * Codes::kPartQuads; i < (part + 1) * Codes::kPartQuads; ++i) {
      add_quad<Codes>(quad_at<Codes::kBits>(codes, static_cast<std::uint32_t>(i)), x, i, sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      Words sum;
      std::memcpy(&sum, sums[r], sizeof sum);
      finish(r, part, sum);
    }
  }
}

#endif

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
