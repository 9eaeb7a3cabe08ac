#include "kernels/cpu/grouped_weights.h"
#include "kernels/cpu/matmul_driver.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Each kind gives the weights of four inputs (a quad) of a column block as floats, exactly: `step`
// points at 64 inputs, quad < 16.

struct F32Weights {
  static constexpr std::size_t kWeightBytes = 64 * 64;
  static constexpr std::size_t kAheadBytes = kWeightBytes / 16;
  // A chain advances one multiplication per input: enough for wide weights, not for narrow ones.
  static constexpr std::uint32_t kChains = 1;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) {
      out[i] = load(reinterpret_cast<const float*>(step) + (quad * 4 + i) * kLanes);
    }
  }
};

struct F16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  static constexpr std::size_t kAheadBytes = kWeightBytes / 16;
  static constexpr std::uint32_t kChains = 2;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 4; ++i) out[i] = load_halves(step + (quad * 4 + i) * 32);
  }
};

struct Bf16Weights {
  static constexpr std::size_t kWeightBytes = 64 * 32;
  static constexpr std::size_t kAheadBytes = kWeightBytes / 16;
  static constexpr std::uint32_t kChains = 2;
  DRAFTHOUSE_INLINE static void decode(const std::byte* step, std::uint32_t quad, Lanes out[4]) {
#pragma GCC unroll 16
    for (std::uint32_t i = 0; i < 2; ++i) {
      const Words pair = load_words(step + (quad * 2 + i) * 64);
      out[2 * i] = bf16_low(pair);
      out[2 * i + 1] = bf16_high(pair);
    }
  }
};

template <class Weights>
struct F32 {
  static constexpr std::size_t kWeightBytes = Weights::kWeightBytes;
  static constexpr std::size_t kActBytes = kInputPadding * 4;
  static constexpr std::uint32_t kChains = Weights::kChains;
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
          read_ahead<rows, Weights::kAheadBytes>(
              part, w + b * part.block_stride + quad * Weights::kAheadBytes);
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

#if defined(__AVX512F__)

// A tile of 16 rows hides the unpacking of its weights; 1 to 4 rows, too, take less time so than
// by way of memory (7.4 ms a pass instead of 9.5).
template <Dtype kind>
struct GroupedWeights {
  static constexpr GroupedKind kKind = grouped_kind(kind);
  static constexpr ScaleForm kForm = kKind.scales;
  static constexpr std::size_t kWeightBytes = pair_bytes(kKind);
  static constexpr std::size_t kAheadBytes = kWeightBytes / 16;
  static constexpr std::uint32_t kChains = 4;
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

template <Dtype kind>
using Grouped = F32<GroupedWeights<kind>>;

#else

// As F32Weights, just unpacked: nothing is to be asked of memory.
struct HeldWeights : F32Weights {
  static constexpr std::size_t kAheadBytes = 0;
  static constexpr std::uint32_t kChains = 4;
};

// Codes are unpacked into floats before any row is multiplied: done anew for every four rows, which
// is what registers hold, it took more than half of the time of a pass on AVX2.
template <Dtype kind>
struct Grouped {
  using Held = F32<HeldWeights>;
  static constexpr GroupedKind kKind = grouped_kind(kind);
  static constexpr ScaleForm kForm = kKind.scales;
  static constexpr std::size_t kWeightBytes = pair_bytes(kKind);
  static constexpr std::size_t kActBytes = Held::kActBytes;
  static constexpr std::uint32_t kChains = Held::kChains;
  static constexpr std::uint32_t kRows = Held::kRows;

  static void unpack(const std::byte* pair, std::byte* held) {
    auto* to = reinterpret_cast<float*>(held);
    for (std::uint32_t group = 0; group < 2; ++group) {
      unpack_half<0>(pair, group, to);
      unpack_half<1>(pair, group, to + kGroupInputs / 2 * kLanes);
      to += kGroupInputs * kLanes;
    }
  }

 private:
  template <int sub>
  DRAFTHOUSE_INLINE static void unpack_half(const std::byte* pair, std::uint32_t group, float* to) {
    const std::byte* codes = pair + header_bytes(kForm) + group * code_bytes(kKind.bits);
    const Lanes scale = scale_at<kForm>(pair, group, sub);
    Lanes minimum = zero();
    if constexpr (has_minimum(kForm)) minimum = minimum_at<kForm>(pair, group, sub);
    unpack_quad(quad_at<kKind.bits, sub * 4>(codes), scale, minimum, to);
    unpack_quad(quad_at<kKind.bits, sub * 4 + 1>(codes), scale, minimum, to + 4 * kLanes);
    unpack_quad(quad_at<kKind.bits, sub * 4 + 2>(codes), scale, minimum, to + 8 * kLanes);
    unpack_quad(quad_at<kKind.bits, sub * 4 + 3>(codes), scale, minimum, to + 12 * kLanes);
  }
  DRAFTHOUSE_INLINE static void unpack_quad(Words quad, Lanes scale, Lanes minimum, float* to) {
    unpack_input<0>(quad, scale, minimum, to);
    unpack_input<8>(quad, scale, minimum, to + kLanes);
    unpack_input<16>(quad, scale, minimum, to + 2 * kLanes);
    unpack_input<24>(quad, scale, minimum, to + 3 * kLanes);
  }
  template <int shift>
  DRAFTHOUSE_INLINE static void unpack_input(Words quad, Lanes scale, Lanes minimum, float* to) {
    const Lanes value = mul(scale, to_float(field<shift, 8, kKind.offset>(quad)));
    if constexpr (has_minimum(kForm)) {
      store(to, add(value, minimum));
    } else {
      store(to, value);
    }
  }
};

#endif

}  // namespace

void matmul_f32(const MatmulJob& job) {
  switch (job.weights.kind) {
    case Dtype::f32: multiply_job<F32<F32Weights>>(job); return;
    case Dtype::f16: multiply_job<F32<F16Weights>>(job); return;
    case Dtype::bf16: multiply_job<F32<Bf16Weights>>(job); return;
    case Dtype::q8_0: multiply_job<Grouped<Dtype::q8_0>>(job); return;
    case Dtype::q4_0: multiply_job<Grouped<Dtype::q4_0>>(job); return;
    case Dtype::q4_1: multiply_job<Grouped<Dtype::q4_1>>(job); return;
    case Dtype::q2_k: multiply_job<Grouped<Dtype::q2_k>>(job); return;
    case Dtype::q4_k: multiply_job<Grouped<Dtype::q4_k>>(job); return;
    case Dtype::q5_k: multiply_job<Grouped<Dtype::q5_k>>(job); return;
    case Dtype::q6_k: multiply_job<Grouped<Dtype::q6_k>>(job); return;
    case Dtype::a4_64: multiply_job<Grouped<Dtype::a4_64>>(job); return;
    case Dtype::a4_32: multiply_job<Grouped<Dtype::a4_32>>(job); return;
    case Dtype::a8_64: multiply_job<Grouped<Dtype::a8_64>>(job); return;
    case Dtype::a8_32: multiply_job<Grouped<Dtype::a8_32>>(job); return;
    case Dtype::s8_32: multiply_job<Grouped<Dtype::s8_32>>(job); return;
    default: return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
