#include "kernels/cpu/grouped_weights.h"
#include "kernels/cpu/matmul_driver.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Each kind gives the weights of four inputs (a quad) of a column block as floats, exactly: `step`
// points at 64 inputs, quad < 16.

struct F32Weights {
  static constexpr std::size_t kWeightBytes = 64 * 64;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) {
      out[i] = load(reinterpret_cast<const float*>(step) + (quad * 4 + i) * kLanes);
    }
  }
};

struct F16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) out[i] = load_halves(step + (quad * 4 + i) * 32);
  }
};

struct Bf16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Words pair = load_words(step + (quad * 2 + i) * 64);
      out[2 * i] = bf16_low(pair);
      out[2 * i + 1] = bf16_high(pair);
    }
  }
};

template <Dtype kind>
struct GroupedWeights {
  static constexpr GroupedKind kKind = grouped_kind(kind);
  static constexpr ScaleForm kForm = kKind.scales;
  static constexpr std::size_t kWeightBytes = pair_bytes(kKind);
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
    const std::uint32_t group = quad / 8;
    const std::uint32_t sub = quad % 8 / 4;
    const std::byte* codes = step + header_bytes(kForm) + group * code_bytes(kKind.bits);
    const Words words = quad_at<kKind.bits>(codes, quad % 8);
    out[0] = to_float(field<0, 8, kKind.offset>(words));
    out[1] = to_float(field<8, 8, kKind.offset>(words));
    out[2] = to_float(field<16, 8, kKind.offset>(words));
    out[3] = to_float(field<24, 8, kKind.offset>(words));
    const Lanes scale = scale_at<kForm>(step, group, sub);
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      out[i] = mul(scale, out[i]);
      if constexpr (has_minimum(kForm)) out[i] = add(out[i], minimum_at<kForm>(step, group, sub));
    }
  }
};

template <class Weights>
struct F32 {
  static constexpr std::size_t kWeightBytes = Weights::kWeightBytes;
  static constexpr std::size_t kActBytes = kInputPadding * 4;
  // A chain advances one multiplication per input: enough for wide weights, not for narrow ones.
  static constexpr std::uint32_t kChains = kWeightBytes >= 64 * 64   ? 1
                                           : kWeightBytes >= 64 * 32 ? 2
                                                                     : 4;
#if defined(__AVX512F__)
  static constexpr std::uint32_t kRows = kTileRows;
#else
  static constexpr std::uint32_t kRows = 4;
#endif

  template <int rows, int blocks>
  static void multiply(const Part& part) {
    Accumulators<rows, blocks> acc(part);
    const std::size_t x_stride = unit_stride<F32, rows>(part) / 4;
    const float* x = reinterpret_cast<const float*>(part.x);
    const std::byte* w = part.weights;
    for (std::uint32_t step = 0; step < part.steps; ++step) {
      for (std::uint32_t quad = 0; quad < kInputPadding / 4; ++quad) {
#pragma GCC unroll 16
        for (int b = 0; b < blocks; ++b) {
          Lanes weights[4];
          Weights::decode(w + b * part.block_stride, quad, weights);
          read_ahead<rows, kWeightBytes / 16>(
              part, w + b * part.block_stride + quad * (kWeightBytes / 16));
#pragma GCC unroll 16
          for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 16
            for (int r = 0; r < rows; ++r) {
              acc.at[b][r] = fma(splat(x + i * x_stride + r), weights[i], acc.at[b][r]);
            }
          }
        }
        x += 4 * x_stride;
      }
      w += kWeightBytes;
    }
    acc.save(part);
  }
};

}  // namespace

void matmul_f32(const MatmulJob& job) {
  switch (job.weights.kind) {
    case Dtype::f32: multiply_job<F32<F32Weights>>(job); return;
    case Dtype::f16: multiply_job<F32<F16Weights>>(job); return;
    case Dtype::bf16: multiply_job<F32<Bf16Weights>>(job); return;
    case Dtype::q8_0: multiply_job<F32<GroupedWeights<Dtype::q8_0>>>(job); return;
    case Dtype::q4_0: multiply_job<F32<GroupedWeights<Dtype::q4_0>>>(job); return;
    case Dtype::q4_1: multiply_job<F32<GroupedWeights<Dtype::q4_1>>>(job); return;
    case Dtype::q2_k: multiply_job<F32<GroupedWeights<Dtype::q2_k>>>(job); return;
    case Dtype::q4_k: multiply_job<F32<GroupedWeights<Dtype::q4_k>>>(job); return;
    case Dtype::q5_k: multiply_job<F32<GroupedWeights<Dtype::q5_k>>>(job); return;
    case Dtype::q6_k: multiply_job<F32<GroupedWeights<Dtype::q6_k>>>(job); return;
    case Dtype::a4_64: multiply_job<F32<GroupedWeights<Dtype::a4_64>>>(job); return;
    case Dtype::a4_32: multiply_job<F32<GroupedWeights<Dtype::a4_32>>>(job); return;
    case Dtype::a8_64: multiply_job<F32<GroupedWeights<Dtype::a8_64>>>(job); return;
    case Dtype::a8_32: multiply_job<F32<GroupedWeights<Dtype::a8_32>>>(job); return;
    case Dtype::s8_32: multiply_job<F32<GroupedWeights<Dtype::s8_32>>>(job); return;
    default: return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
