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

// Of the first half: sums of codes, by row.
#if defined(__AVX512F__)
template <int rows>
DRAFTHOUSE_INLINE Words first_half_sums(const ActGroup& x) {
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
DRAFTHOUSE_INLINE std::int32_t first_half_sum(const ActGroup& x, int row) {
  std::int32_t sum = 0;
  for (int quad = 0; quad < kQuads / 2; ++quad) {
    for (int i = 0; i < 4; ++i) sum += static_cast<std::int8_t>(x.codes(quad, row)[i]);
  }
  return sum;
}
#endif

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA

// group_sums<Codes, rows>(codes, x, finish) calls finish(At<i>{}, x, row, part, sums of 32 bits)
// once per row, part and vector i of the block's lanes, a row's first part before its second.
#if defined(__AVX512F__)
#include "kernels/cpu/int8_sums_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/int8_sums_avx2.h"
#else
#include "kernels/cpu/int8_sums_generic.h"
#endif
