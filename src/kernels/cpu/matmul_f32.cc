#include "kernels/cpu/matmul_driver.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Each kind gives the weights of four inputs (a quad) of a column block as floats, exactly: `step`
// points at 64 inputs, quad < 16.

struct F32Weights {
  static constexpr std::size_t kWeightBytes = 64 * 64;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) {
      out[i] = load(reinterpret_cast<const float*>(step) + (quad * 4 + i) * kLanes);
    }
  }
};

struct F16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) out[i] = load_halves(step + (quad * 4 + i) * 32);
  }
};

struct Bf16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Words pair = load_words(step + (quad * 2 + i) * 64);
      out[2 * i] = bf16_low(pair);
      out[2 * i + 1] = bf16_high(pair);
    }
  }
};

struct Q8Weights {
  static constexpr std::size_t kWeightBytes = 1088;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
    const Words codes = load_words(step + 64 + quad * 64);
    const Lanes scale = load_halves(step + quad / 8 * 32);
    out[0] = mul(scale, to_float(field<0, 8, 128>(codes)));
    out[1] = mul(scale, to_float(field<8, 8, 128>(codes)));
    out[2] = mul(scale, to_float(field<16, 8, 128>(codes)));
    out[3] = mul(scale, to_float(field<24, 8, 128>(codes)));
  }
};

template <int shift, int offset>
void decode_nibbles(Words codes, Lanes out[4]) {
  out[0] = to_float(field<shift, 4, offset>(codes));
  out[1] = to_float(field<shift + 8, 4, offset>(codes));
  out[2] = to_float(field<shift + 16, 4, offset>(codes));
  out[3] = to_float(field<shift + 24, 4, offset>(codes));
}

template <int offset>
void decode_q4(const std::byte* first, std::uint32_t quad, Lanes out[4]) {
  const Words codes = load_words(first + quad / 2 * 64);
  if (quad % 2 == 0) {
    decode_nibbles<0, offset>(codes, out);
  } else {
    decode_nibbles<4, offset>(codes, out);
  }
}

struct Q4_0Weights {
  static constexpr std::size_t kWeightBytes = 576;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
    const Lanes scale = load_halves(step + quad / 8 * 32);
    decode_q4<8>(step + 64, quad, out);
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) out[i] = mul(scale, out[i]);
  }
};

struct Q4_1Weights {
  static constexpr std::size_t kWeightBytes = 640;
  static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
    const Lanes scale = load_halves(step + quad / 8 * 32);
    const Lanes minimum = load_halves(step + 64 + quad / 8 * 32);
    decode_q4<0>(step + 128, quad, out);
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) out[i] = add(mul(scale, out[i]), minimum);
  }
};

template <class Weights>
struct F32 {
  static constexpr std::size_t kWeightBytes = Weights::kWeightBytes;
  static constexpr std::size_t kActBytes = kInputPadding * 4;
  // A chain advances one multiplication per input: enough for wide weights, not for narrow ones.
  static constexpr std::uint32_t kChains =
      kWeightBytes >= 64 * 64 ? 1 : kWeightBytes >= 64 * 32 ? 2 : 4;
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
          read_ahead<rows, kWeightBytes / 16>(w + b * part.block_stride +
                                              quad * (kWeightBytes / 16));
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
    case Dtype::q8_0: multiply_job<F32<Q8Weights>>(job); return;
    case Dtype::q4_0: multiply_job<F32<Q4_0Weights>>(job); return;
    case Dtype::q4_1: multiply_job<F32<Q4_1Weights>>(job); return;
    default: return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
