#pragma once

// Part of int8_sums.h, for AVX2 and AVX-VNNI (256 bits).
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

DRAFTHOUSE_INLINE __m256i splat_vector(const std::byte* from) { return splat_word(from).low; }

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

// −offset × the sum of codes of each row, made by scalar instructions and read by broadcasts, which
// leave the vector units to the products.
template <class Codes, int rows>
struct Starts {
  static constexpr int kOffset = kStartOffset<Codes>;
  std::int32_t at[rows];

  DRAFTHOUSE_INLINE explicit Starts(const ActGroup& x) {
    if constexpr (kOffset != 0) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        std::memcpy(&at[r], x.sum(r), sizeof at[r]);
        at[r] *= -kOffset;
      }
      // Left alone, the compiler would keep them in vectors and shuffle them out again.
      __asm__("" : "+m"(at));
    }
  }
  DRAFTHOUSE_INLINE __m256i operator[](int r) const {
    return kOffset == 0 ? _mm256_setzero_si256() : _mm256_set1_epi32(at[r]);
  }
};

// Weights as an unsigned factor, and what gives its sign to the input.
struct SplitWeights {
  __m256i sizes;
  __m256i signs;
};
template <class Codes>
DRAFTHOUSE_INLINE SplitWeights split_weights(__m256i stored) {
  if constexpr (kSigned<Codes>) {
    const __m256i offset =
        _mm256_set1_epi8(static_cast<char>(Codes::kBits == 8 ? 128 : Codes::kOffset));
    const __m256i weights = _mm256_sub_epi8(stored, offset);
    return {_mm256_abs_epi8(weights), weights};
  } else {
    return {stored, stored};
  }
}
template <class Codes>
DRAFTHOUSE_INLINE __m256i signed_inputs(__m256i inputs, __m256i signs) {
  if constexpr (kSigned<Codes>) return _mm256_sign_epi8(inputs, signs);
  return inputs;
}

// One vector of the block's lanes after the other: the sums of eight rows and what they need stay
// in sixteen registers.

#if defined(__AVXVNNI__)

template <class Codes, int rows, int quad, int vector>
DRAFTHOUSE_INLINE void add_quad(const std::byte* codes, const ActGroup& x, __m256i (&sums)[rows]) {
  const SplitWeights w =
      split_weights<Codes>(vector_of<vector>(quad_at<Codes::kBits, quad>(codes)));
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i inputs = signed_inputs<Codes>(splat_vector(x.codes(quad, r)), w.signs);
    sums[r] = _mm256_dpbusd_avx_epi32(sums[r], w.sizes, inputs);
  }
}

template <class Codes, int rows, int first, int vector>
DRAFTHOUSE_INLINE void add_four(const std::byte* codes, const ActGroup& x, __m256i (&sums)[rows]) {
  add_quad<Codes, rows, first, vector>(codes, x, sums);
  add_quad<Codes, rows, first + 1, vector>(codes, x, sums);
  add_quad<Codes, rows, first + 2, vector>(codes, x, sums);
  add_quad<Codes, rows, first + 3, vector>(codes, x, sums);
}

#else

// sums: 16 bits wide, of products that fit them, for at most four quads; half as many bits, eight.
//   bits 4: 15 · 127 · 2 · 8      bits 5: 31 · 127 · 2 · 4      bits 6: 32 · 127 · 2 · 4
template <class Codes, int rows, int quad, int vector, bool first>
DRAFTHOUSE_INLINE void add_short(const std::byte* codes, const ActGroup& x, __m256i (&sums)[rows]) {
  const SplitWeights w =
      split_weights<Codes>(vector_of<vector>(quad_at<Codes::kBits, quad>(codes)));
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    const __m256i inputs = signed_inputs<Codes>(splat_vector(x.codes(quad, r)), w.signs);
    const __m256i products = _mm256_maddubs_epi16(w.sizes, inputs);
    sums[r] = first ? products : _mm256_add_epi16(sums[r], products);
    // Here and in no other order: the compiler would gather products and spill them.
    __asm__ volatile("" : "+x"(sums[r]));
  }
}

template <class Codes, int rows, int from, int vector, bool first>
DRAFTHOUSE_INLINE void add_four_short(const std::byte* codes, const ActGroup& x,
                                      __m256i (&sums)[rows]) {
  add_short<Codes, rows, from, vector, first>(codes, x, sums);
  add_short<Codes, rows, from + 1, vector, false>(codes, x, sums);
  add_short<Codes, rows, from + 2, vector, false>(codes, x, sums);
  add_short<Codes, rows, from + 3, vector, false>(codes, x, sums);
}

template <int rows>
DRAFTHOUSE_INLINE void widen(const __m256i (&from)[rows], __m256i (&sums)[rows]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(from[r], ones));
  }
}

// Eight bits: every quad is widened by itself.
template <class Codes, int rows, int vector>
DRAFTHOUSE_INLINE void add_wide(const std::byte* codes, const ActGroup& x, __m256i (&sums)[rows]) {
  // vpsignb shares the multipliers' ports. For more rows than this it costs less to multiply sizes
  // of negative weights by ~x, which is −x − 1, and to add those sizes once for all rows. Their
  // sums of pairs are at least 128 · −128 · 2.
  constexpr bool kInvert = rows > 4;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i negative_sizes = _mm256_setzero_si256();
  // Unrolled, the compiler would gather the sums of several quads and spill them.
#pragma GCC unroll 1
  for (int i = 0; i < kQuads; ++i) {
    const SplitWeights w =
        split_weights<Codes>(vector_of<vector>(load_words(codes + i * kQuadBytes)));
    __m256i negative;
    if constexpr (kInvert) {
      negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w.signs);
      const __m256i one_where_negative = _mm256_abs_epi8(negative);
      negative_sizes =
          _mm256_add_epi16(negative_sizes, _mm256_maddubs_epi16(w.sizes, one_where_negative));
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      __m256i inputs = splat_vector(x.codes(i, r));
      if constexpr (kInvert) {
        inputs = _mm256_xor_si256(inputs, negative);
      } else {
        inputs = _mm256_sign_epi8(inputs, w.signs);
      }
      const __m256i products = _mm256_maddubs_epi16(w.sizes, inputs);
      sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(products, ones));
      // As in add_short.
      if constexpr (kInvert) __asm__ volatile("" : "+x"(sums[r]));
    }
  }
  if constexpr (kInvert) {
    const __m256i rest = _mm256_madd_epi16(negative_sizes, ones);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) sums[r] = _mm256_add_epi32(sums[r], rest);
  }
}

#endif

template <class Codes, int rows, int part, int vector, class Finish>
DRAFTHOUSE_INLINE void part_sums(const std::byte* codes, const ActGroup& x,
                                 const Starts<Codes, rows>& starts, const Finish& finish) {
  __m256i sums[rows];
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) sums[r] = starts[r];
#if defined(__AVXVNNI__)
  add_four<Codes, rows, part * 4, vector>(codes, x, sums);
  if constexpr (Codes::kParts == 1) add_four<Codes, rows, 4, vector>(codes, x, sums);
#else
  if constexpr (Codes::kBits == 8) {
    add_wide<Codes, rows, vector>(codes, x, sums);
  } else {
    __m256i shorts[rows];
    add_four_short<Codes, rows, part * 4, vector, true>(codes, x, shorts);
    if constexpr (Codes::kParts == 1) {
      constexpr bool kFits = Codes::kBits == 4;
      if constexpr (!kFits) widen(shorts, sums);
      add_four_short<Codes, rows, 4, vector, !kFits>(codes, x, shorts);
    }
    widen(shorts, sums);
  }
#endif
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) finish(At<vector>{}, x, r, part, sums[r]);
}

template <class Codes, int rows, int vector, class Finish>
DRAFTHOUSE_INLINE void vector_sums(const std::byte* codes, ActGroup x, Starts<Codes, rows>& starts,
                                   const Finish& finish) {
  // The compiler would keep the first vector's inputs for the second, in memory for want of
  // registers; to read and spread them again costs less.
  __asm__ volatile("" : "+r"(x.at));
  if constexpr (kStartOffset<Codes> != 0) __asm__ volatile("" : "+m"(starts.at));
  part_sums<Codes, rows, 0, vector>(codes, x, starts, finish);
  if constexpr (Codes::kParts == 2) part_sums<Codes, rows, 1, vector>(codes, x, starts, finish);
}

template <class Codes, int rows, class Finish>
DRAFTHOUSE_INLINE void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  Starts<Codes, rows> starts(x);
  vector_sums<Codes, rows, 0>(codes, x, starts, finish);
  vector_sums<Codes, rows, 1>(codes, x, starts, finish);
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
