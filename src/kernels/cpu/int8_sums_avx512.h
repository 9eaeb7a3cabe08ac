#pragma once

// Part of int8_sums.h.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// sums += products of four codes by a row's four inputs. The compiler would load the inputs into a
// register of their own first, which costs an instruction of two.
DRAFTHOUSE_INLINE void add_products(__m512i& sums, __m512i weights, const std::byte* input) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sums)
          : "v"(weights), "m"(*reinterpret_cast<const std::int32_t*>(input)));
}

// `input_sums`: of the part's inputs, by row; used where codes have an offset.
template <class Codes, int rows, int part, class Finish>
DRAFTHOUSE_INLINE void part_sums(const std::byte* codes, const ActGroup& x, __m512i input_sums,
                                 const Finish& finish) {
  constexpr int kFirst = part * Codes::kPartQuads;
  // The sums of more rows leave no registers for all codes, so codes of eight bits are read again
  // by each half of the rows.
  constexpr bool kReread = rows > 8 && Codes::kBits == 8;
  __m512i quads[Codes::kPartQuads];
#pragma GCC unroll 16
  for (int i = 0; i < Codes::kPartQuads && !kReread; ++i) {
    quads[i] = quad_at<Codes::kBits>(codes, kFirst + i);
  }
  // Each row's sum starts with −offset × the sum of its codes, made for all rows at once.
  alignas(64) std::int32_t starts[16];
  if constexpr (Codes::kOffset != 0) {
    _mm512_store_si512(starts, _mm512_sub_epi32(_mm512_setzero_si512(),
                                                _mm512_slli_epi32(input_sums, Codes::kOffsetLog2)));
    // Left alone, the compiler would take the starts out of a register again, by shuffles.
    __asm__("" : "+m"(starts));
  }
  // A row's products wait for each other, so rows take turns: as many as have registers for their
  // sums beside those of all rows, and in program order, because a whole group of 16 rows is more
  // than a CPU looks ahead, and one that shares its core with a neighbour looks half as far.
  constexpr int kTogether = rows <= 8 ? rows : (rows + 1) / 2;
#pragma GCC unroll 16
  for (int first = 0; first < rows; first += kTogether) {
    const int last = first + kTogether < rows ? first + kTogether : rows;
    __m512i sums[kTogether];
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) {
      sums[r - first] = Codes::kOffset != 0 ? _mm512_set1_epi32(starts[r]) : _mm512_setzero_si512();
    }
    if constexpr (kReread) __asm__("" : "+r"(codes));
#pragma GCC unroll 16
    for (int i = 0; i < Codes::kPartQuads; ++i) {
      const __m512i quad = kReread ? quad_at<Codes::kBits>(codes, kFirst + i) : quads[i];
#pragma GCC unroll 16
      for (int r = first; r < last; ++r) {
        add_products(sums[r - first], quad, x.codes(kFirst + i, r));
      }
    }
#pragma GCC unroll 16
    for (int r = first; r < last; ++r) finish(At<0>{}, x, r, part, sums[r - first]);
  }
}

template <class Codes, int rows, class Finish>
DRAFTHOUSE_INLINE void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
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
}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
