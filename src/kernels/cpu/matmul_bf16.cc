#include "kernels/cpu/matmul_driver.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kPairs = kInputPadding / 2;  // units of a step

struct Bf16 {
  static constexpr std::size_t kWeightBytes = kPairs * kLanes * 4;
  static constexpr std::size_t kActBytes = kPairs * 4;
#if defined(__AVX512BF16__)
  static constexpr std::uint32_t kRows = kTileRows;
  static constexpr std::uint32_t kChains = 1;
#elif defined(__AVX512F__)
  static constexpr std::uint32_t kRows = kTileRows;
  static constexpr std::uint32_t kChains = 2;
#else
  static constexpr std::uint32_t kRows = 4;
  static constexpr std::uint32_t kChains = 2;
#endif
  template <int rows, int blocks>
  static void multiply(const Part& part);
};

#if defined(__AVX512BF16__)

template <int rows, int blocks>
void Bf16::multiply(const Part& part) {
  Accumulators<rows, blocks> acc(part);
  const std::byte* x = part.x;
  const std::byte* w = part.weights;
  const std::size_t x_stride = unit_stride<Bf16, rows>(part);
  for (std::uint32_t unit = 0; unit < part.steps * kPairs; ++unit) {
#pragma GCC unroll 16
    for (int b = 0; b < blocks; ++b) {
      const __m512bh weights = reinterpret_cast<__m512bh>(load_words(w + b * part.block_stride));
      read_ahead<rows, kLanes * 4>(part, w + b * part.block_stride);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const __m512bh inputs = reinterpret_cast<__m512bh>(splat_word(x + r * 4));
        acc.at[b][r] = _mm512_dpbf16_ps(acc.at[b][r], weights, inputs);
      }
    }
    x += x_stride;
    w += kLanes * 4;
  }
  acc.save(part);
}

#elif defined(__AVX512F__)

// Inputs are widened a step at a time, 16 units at once, so that the loop over weights has nothing
// but multiplications with an input broadcast from memory. Here a group of rows is a whole tile.
template <int rows, int blocks>
void Bf16::multiply(const Part& part) {
  Accumulators<rows, blocks> acc(part);
  const std::byte* x = part.x;
  const std::byte* w = part.weights;
  for (std::uint32_t step = 0; step < part.steps; ++step) {
    alignas(64) float even[kPairs * rows];
    alignas(64) float odd[kPairs * rows];
    for (int i = 0; i < static_cast<int>(kPairs) * rows; i += 16) {
      const Words units = load_words(x + i * 4);
      store(even + i, bf16_low(units));
      store(odd + i, bf16_high(units));
    }
    for (std::uint32_t unit = 0; unit < kPairs; ++unit) {
#pragma GCC unroll 16
      for (int b = 0; b < blocks; ++b) {
        const Words weights = load_words(w + b * part.block_stride);
        read_ahead<rows, kLanes * 4>(part, w + b * part.block_stride);
        const Lanes low = bf16_low(weights);
        const Lanes high = bf16_high(weights);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          acc.at[b][r] = fma(splat(even + unit * rows + r), low, acc.at[b][r]);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          acc.at[b][r] = fma(splat(odd + unit * rows + r), high, acc.at[b][r]);
        }
      }
      w += kLanes * 4;
    }
    x += kActBytes * rows;
  }
  acc.save(part);
}

#else

template <int rows, int blocks>
void Bf16::multiply(const Part& part) {
  Accumulators<rows, blocks> acc(part);
  const std::byte* x = part.x;
  const std::byte* w = part.weights;
  const std::size_t x_stride = unit_stride<Bf16, rows>(part);
  for (std::uint32_t unit = 0; unit < part.steps * kPairs; ++unit) {
#pragma GCC unroll 16
    for (int b = 0; b < blocks; ++b) {
      const Words weights = load_words(w + b * part.block_stride);
      read_ahead<rows, kLanes * 4>(part, w + b * part.block_stride);
      const Lanes low = bf16_low(weights);
      const Lanes high = bf16_high(weights);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Words inputs = splat_word(x + r * 4);
        acc.at[b][r] = fma(bf16_low(inputs), low, acc.at[b][r]);
        acc.at[b][r] = fma(bf16_high(inputs), high, acc.at[b][r]);
      }
    }
    x += x_stride;
    w += kLanes * 4;
  }
  acc.save(part);
}

#endif

}  // namespace

void matmul_bf16(const MatmulJob& job) { multiply_job<Bf16>(job); }

}  // namespace drafthouse::DRAFTHOUSE_ISA
