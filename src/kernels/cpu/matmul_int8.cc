#include "kernels/cpu/int8_sums.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

#if defined(__AVX2__) || defined(__FP_FAST_FMAF)
template <class Vector>
DRAFTHOUSE_INLINE Vector fused(Vector a, Vector b, Vector c) {
  return fma(a, b, c);
}
#else
// The lanes' own fma may round twice; int8 results are equal on every ISA.
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
  for (int i = 0; i < 16; ++i) a.at[i] = __builtin_fmaf(a.at[i], b.at[i], c.at[i]);
  return a;
}
#endif

// scale × sum of codes of each part, by row: what minima are multiplied by.
template <int rows, int parts>
DRAFTHOUSE_INLINE void scaled_sums(const ActGroup& x, float (&out)[parts][kLanes]) {
#if defined(__AVX512F__)
  constexpr __mmask16 kMask = static_cast<__mmask16>((1u << rows) - 1u);
  const Lanes scales = _mm512_maskz_loadu_ps(kMask, x.scale(0));
  Words sums = _mm512_maskz_loadu_epi32(kMask, x.sum(0));
  if constexpr (parts == 2) {
    const Words first = first_half_sums<rows>(x);
    sums = _mm512_sub_epi32(sums, first);
    store(out[0], mul(scales, to_float(first)));
  }
  store(out[parts - 1], mul(scales, to_float(sums)));
#else
#if defined(__AVX2__)
  if constexpr (parts == 1 && rows % 4 == 0) {
    for (int r = 0; r < rows; r += 4) {
      const __m128i sums = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x.sum(r)));
      _mm_store_ps(&out[0][r], _mm_mul_ps(_mm_loadu_ps(x.scale(r)), _mm_cvtepi32_ps(sums)));
    }
    return;
  }
#endif
  for (int r = 0; r < rows; ++r) {
    std::int32_t sum;
    std::memcpy(&sum, x.sum(r), sizeof sum);
    if constexpr (parts == 2) {
      const std::int32_t first = first_half_sum(x, r);
      sum -= first;
      out[0][r] = *x.scale(r) * static_cast<float>(first);
    }
    out[parts - 1][r] = *x.scale(r) * static_cast<float>(sum);
  }
#endif
}

template <Dtype kind>
struct Int8 {
  static constexpr GroupedKind kKind = grouped_kind(kind);
  static constexpr ScaleForm kForm = kKind.scales;
  static constexpr int kParts = Codes<kind>::kParts;
  static constexpr std::size_t kWeightBytes = pair_bytes(kKind);
  static constexpr std::size_t kActBytes = 2 * 10 * 4;
  // Groups depend on each other by one addition only: one block has work enough.
  static constexpr std::uint32_t kChains = 1;
#if defined(__AVX512F__)
  static constexpr std::uint32_t kRows = kTileRows;
#elif defined(__AVX2__)
  static constexpr std::uint32_t kRows = 8;
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
          const std::byte* pair = w + b * part.block_stride;
          read_ahead<rows, kWeightBytes / 2>(part, pair + half * (kWeightBytes / 2));
          read_soon<rows, kWeightBytes / 2>(pair + half * (kWeightBytes / 2));
          add_group<rows>(pair, half, x, acc.at[b]);
        }
        x.at += 10 * x.stride;
      }
      w += kWeightBytes;
    }
    acc.save(part);
  }

 private:
  // Products first, then minima, each part after the other: the order of every row.
  template <int rows>
  DRAFTHOUSE_INLINE static void add_group(const std::byte* pair, std::size_t half,
                                          const ActGroup& x, Lanes acc[rows]) {
    alignas(64) float input_sums[kParts][kLanes];
    if constexpr (has_minimum(kForm)) scaled_sums<rows>(x, input_sums);
    const Lanes scale = scale_at<kForm>(pair, half, 0);
    const Lanes second = scale_at<kForm>(pair, half, kParts - 1);
    const std::byte* codes = pair + header_bytes(kForm) + half * code_bytes(kKind.bits);
    const auto add = [&]<int i, class Sums>(At<i>, const ActGroup& group, int r, int part,
                                            Sums sums) __attribute__((always_inline)) {
      auto& out = vector_of<i>(acc[r]);
      const auto input_scale = vector_of<i>(splat(group.scale(r)));
      out = fused(to_float(sums), mul(vector_of<i>(part == 0 ? scale : second), input_scale), out);
      if constexpr (has_minimum(kForm) && kParts == 1) {
        // As in vector_sums: not the first vector's, kept.
        if (i > 0 && r == 0) __asm__ volatile("" : "+m"(input_sums));
        out = fused(vector_of<i>(minimum_at<kForm>(pair, half, 0)),
                    vector_of<i>(splat(&input_sums[0][r])), out);
      }
    };
    group_sums<Codes<kind>, rows>(codes, x, add);
    if constexpr (has_minimum(kForm) && kParts == 2) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        acc[r] = fused(minimum_at<kForm>(pair, half, 0), splat(&input_sums[0][r]), acc[r]);
        acc[r] = fused(minimum_at<kForm>(pair, half, 1), splat(&input_sums[1][r]), acc[r]);
      }
    }
  }
};

}  // namespace

void matmul_int8(const MatmulJob& job) {
  switch (job.weights.kind) {
    case Dtype::q8_0: multiply_job<Int8<Dtype::q8_0>>(job); return;
    case Dtype::q4_0: multiply_job<Int8<Dtype::q4_0>>(job); return;
    case Dtype::q4_1: multiply_job<Int8<Dtype::q4_1>>(job); return;
    case Dtype::q2_k: multiply_job<Int8<Dtype::q2_k>>(job); return;
    case Dtype::q4_k: multiply_job<Int8<Dtype::q4_k>>(job); return;
    case Dtype::q5_k: multiply_job<Int8<Dtype::q5_k>>(job); return;
    case Dtype::q6_k: multiply_job<Int8<Dtype::q6_k>>(job); return;
    case Dtype::a4_64: multiply_job<Int8<Dtype::a4_64>>(job); return;
    case Dtype::a4_32: multiply_job<Int8<Dtype::a4_32>>(job); return;
    case Dtype::a8_64: multiply_job<Int8<Dtype::a8_64>>(job); return;
    case Dtype::a8_32: multiply_job<Int8<Dtype::a8_32>>(job); return;
    case Dtype::s8_32: multiply_job<Int8<Dtype::s8_32>>(job); return;
    default: return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
