#include "kernels/cpu/int8_sums.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

#if defined(__AVX2__) || defined(__FP_FAST_FMAF)
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return fma(a, b, c); }
#else
// The lanes' own fma may round twice; int8 results are equal on every ISA.
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
  for (int i = 0; i < 16; ++i) a.at[i] = __builtin_fmaf(a.at[i], b.at[i], c.at[i]);
  return a;
}
#endif

template <int rows>
inline void scaled_sums(const ActGroup& x, float out[kLanes]) {
#if defined(__AVX512F__)
  constexpr __mmask16 kMask = static_cast<__mmask16>((1u << rows) - 1u);
  const Lanes scales = _mm512_maskz_loadu_ps(kMask, x.scale(0));
  const Words sums = _mm512_maskz_loadu_epi32(kMask, x.sum(0));
  store(out, mul(scales, to_float(sums)));
#else
  for (int r = 0; r < rows; ++r) {
    std::int32_t sum;
    std::memcpy(&sum, x.sum(r), sizeof sum);
    out[r] = *x.scale(r) * static_cast<float>(sum);
  }
#endif
}

// Two groups: their scales, for q4_1 their minima, then their codes.
template <class Codes>
struct Int8 {
  static constexpr bool kHasMinimum = Codes::kOffset == 0;
  static constexpr std::size_t kMinimaAt = 64;
  static constexpr std::size_t kCodesAt = kHasMinimum ? 128 : 64;
  static constexpr std::size_t kWeightBytes = kCodesAt + 2 * Codes::kBytes;
  static constexpr std::size_t kActBytes = 2 * 10 * 4;
  // Groups depend on each other by one addition only: one block has work enough.
  static constexpr std::uint32_t kChains = 1;
#if defined(__AVX512F__)
  static constexpr std::uint32_t kRows = kTileRows;
#else
  static constexpr std::uint32_t kRows = 4;
#endif

  template <int rows, int blocks>
  static void multiply(const Part& part) {
    Accumulators<rows, blocks> acc(part);
    ActGroup x{part.x, unit_stride<Int8, rows>(part)};
    const std::byte* w = part.weights;
    for (std::uint32_t step = 0; step < part.steps; ++step) {
      for (std::size_t half = 0; half < 2; ++half) {
#pragma GCC unroll 16
        for (int b = 0; b < blocks; ++b) {
          add_group<rows>(w + b * part.block_stride, half, x, acc.at[b]);
        }
        x.at += 10 * x.stride;
      }
      w += kWeightBytes;
    }
    acc.save(part);
  }

 private:
  template <int rows>
  static inline void add_group(const std::byte* pair, std::size_t half, const ActGroup& x,
                               Lanes acc[rows]) {
    const Lanes scale = load_halves(pair + half * 32);
    alignas(64) float input_sums[kLanes];  // scale × sum of codes, by row
    if constexpr (kHasMinimum) scaled_sums<rows>(x, input_sums);
    read_ahead<rows, kWeightBytes / 2>(pair + half * (kWeightBytes / 2));
    read_soon<rows, kWeightBytes / 2>(pair + half * (kWeightBytes / 2));
    group_sums<Codes, rows>(pair + kCodesAt + half * Codes::kBytes, x, [&](int r, Words sum) {
      const Lanes input_scale = splat(x.scale(r));
      acc[r] = fused(to_float(sum), mul(scale, input_scale), acc[r]);
      if constexpr (kHasMinimum) {
        const Lanes minimum = load_halves(pair + kMinimaAt + half * 32);
        acc[r] = fused(minimum, splat(&input_sums[r]), acc[r]);
      }
    });
  }
};

}  // namespace

void matmul_int8(const MatmulJob& job) {
  switch (job.weights.kind) {
    case Dtype::q8_0: multiply_job<Int8<Q8Codes>>(job); return;
    case Dtype::q4_0: multiply_job<Int8<Q4_0Codes>>(job); return;
    case Dtype::q4_1: multiply_job<Int8<Q4_1Codes>>(job); return;
    default: return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
