#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/lanes.h"
#include "kernels/isa.h"

// The loops around one weight format's inner kernel, for its matmul_*.cc.
//
// A Format says how 64 inputs of a column block and of an activation row are stored, and multiplies
// `rows` rows of a tile by `blocks` column blocks over a range of inputs:
//
//   static constexpr std::size_t kWeightBytes, kActBytes;  // of 64 inputs: a block's, a row's
//   static constexpr std::uint32_t kRows;                  // most rows at once
//   static constexpr std::uint32_t kChains;                // accumulators (rows × blocks) it may
//   use template <int rows, int blocks> static void multiply(const Part& part);
//
// An output's sum lives in an accumulator that is kept in memory between two ranges of inputs,
// which changes no bit. So how many rows and blocks share a pass, and where inputs are cut, is
// free.
//
// A Format whose weights cost more to take apart than to multiply has, instead of multiply,
//
//   using Held;  // another Format, with the same kActBytes, kRows and kChains
//   static void unpack(const std::byte* weights, std::byte* held);  // 64 inputs of a column block
//
// and is taken apart once for all rows.
namespace drafthouse::DRAFTHOUSE_ISA {

void matmul_bf16(const MatmulJob& job);
void matmul_int8(const MatmulJob& job);
void matmul_f32(const MatmulJob& job);

namespace {

constexpr std::uint32_t kLanes = kBlockOutputs;

// acc[block][row][16] += sums over `steps` × 64 inputs.
struct Part {
  const std::byte* weights;
  std::size_t block_stride;  // bytes between column blocks
  const std::byte* x;        // the first row's first unit
  std::uint32_t tile_rows;   // units between two units of a row
  std::uint32_t steps;
  float* acc;
  std::size_t acc_stride;  // floats between column blocks
  bool few_ahead;          // read_ahead() for one or two rows too
};

// Bytes between two units of a row. Where a kernel takes a whole tile the compiler knows it.
template <class Format, int rows>
std::size_t unit_stride(const Part& part) {
  if constexpr (Format::kRows == kTileRows) return rows * 4;
  return static_cast<std::size_t>(part.tile_rows) * 4;
}

// Asks for weights that are multiplied later. Several rows use a line for so long that the
// hardware's own read-ahead, which counts accesses, comes too late; for one or two rows some CPUs'
// is better. Measured on Zen 4: into the second level, far enough to cross pages, raised 8 rows of
// bf16 from 0.61 to 0.92 of what memory and arithmetic allow; 1 to 4 KiB into the first did not.
// Inlined by force: a call that only prefetches has no effect that GCC would keep it for.
constexpr std::size_t kReadAhead = 16 * 1024;
template <int rows, std::size_t bytes>
DRAFTHOUSE_INLINE void read_ahead(const Part& part, const std::byte* weights) {
  if (rows > 2 || part.few_ahead) {
#pragma GCC unroll 32
    for (std::size_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(weights + kReadAhead + at, 0, 2);
    }
  }
}

// Asks once more, into the first level. Int8 kernels load a whole group's weights at once and then
// use them for long, so the wait for the second level is one that nothing hides: 3 to 7 % at 8 and
// 16 rows on Zen 4, nothing at 4.
constexpr std::size_t kReadSoon = 2 * 1088;
template <int rows, std::size_t bytes>
DRAFTHOUSE_INLINE void read_soon(const std::byte* weights) {
  if constexpr (rows > 4) {
#pragma GCC unroll 32
    for (std::size_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(weights + kReadSoon + at, 0, 3);
    }
  }
}

// The sums of rows × blocks × 16 outputs. Loops over them are unrolled so that they stay in
// registers.
template <int rows, int blocks>
struct Accumulators {
  Lanes at[blocks][rows];

  explicit Accumulators(const Part& part) {
#pragma GCC unroll 16
    for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) at[b][r] = load(part.acc + b * part.acc_stride + r * kLanes);
    }
  }
  void save(const Part& part) const {
#pragma GCC unroll 16
    for (int b = 0; b < blocks; ++b) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) store(part.acc + b * part.acc_stride + r * kLanes, at[b][r]);
    }
  }
};

using Multiply = void (*)(const Part& part);

template <class Format, int blocks, int rows>
constexpr Multiply multiply_or_null() {
  if constexpr ((blocks == 1 || rows * blocks <= static_cast<int>(Format::kChains)) &&
                rows <= static_cast<int>(Format::kRows)) {
    return &Format::template multiply<rows, blocks>;
  } else {
    return nullptr;
  }
}

// The kernels of a format for 1 … 16 rows.
template <class Format, int blocks>
struct ByRows {
  static constexpr Multiply kTable[kTileRows + 1] = {
      nullptr,
      multiply_or_null<Format, blocks, 1>(),
      multiply_or_null<Format, blocks, 2>(),
      multiply_or_null<Format, blocks, 3>(),
      multiply_or_null<Format, blocks, 4>(),
      multiply_or_null<Format, blocks, 5>(),
      multiply_or_null<Format, blocks, 6>(),
      multiply_or_null<Format, blocks, 7>(),
      multiply_or_null<Format, blocks, 8>(),
      multiply_or_null<Format, blocks, 9>(),
      multiply_or_null<Format, blocks, 10>(),
      multiply_or_null<Format, blocks, 11>(),
      multiply_or_null<Format, blocks, 12>(),
      multiply_or_null<Format, blocks, 13>(),
      multiply_or_null<Format, blocks, 14>(),
      multiply_or_null<Format, blocks, 15>(),
      multiply_or_null<Format, blocks, 16>(),
  };
};

template <class Format>
Multiply kernel_for(std::uint32_t rows, std::uint32_t blocks) {
  switch (blocks) {
    case 4: return ByRows<Format, 4>::kTable[rows];
    case 2: return ByRows<Format, 2>::kTable[rows];
    default: return ByRows<Format, 1>::kTable[rows];
  }
}

// Rows that share one read of the weights from memory: their accumulators are 32 KiB.
constexpr std::uint32_t kRowsAtOnce = 512;
// Weights that every group of rows uses before the next ones are read. A group that is a whole tile
// uses a line for so long that the second level cache is near enough, and long ranges of inputs
// save time between them; smaller groups want the first level.
template <class Format>
constexpr std::size_t kCachedWeights = (Format::kRows == kTileRows ? 64 : 16) * 1024;

// Rows of a job; `begin` is the first of a tile.
struct RowRange {
  std::uint32_t begin;
  std::uint32_t end;
};

inline std::uint32_t steps_of(const MatmulJob& job) {
  return (job.weights.inputs + kInputPadding - 1) / kInputPadding;
}

// Multiplies inputs from 64 × step on; `part` has all but what differs between groups of rows.
template <class Format>
void multiply_rows(const MatmulJob& job, RowRange range, std::uint32_t blocks, std::uint32_t step,
                   const Part& part) {
  const std::size_t tile_bytes = steps_of(job) * Format::kActBytes * kTileRows;
  for (std::uint32_t row = range.begin; row < range.end;) {
    const std::uint32_t in_tile = row % kTileRows;
    const std::uint32_t tile_begin = row - in_tile;
    const std::uint32_t left = job.rows - tile_begin;
    const std::uint32_t tile_rows = left < kTileRows ? left : kTileRows;
    const std::uint32_t rest = tile_rows - in_tile;
    const std::uint32_t rows = rest < Format::kRows ? rest : Format::kRows;

    Part group = part;
    group.tile_rows = tile_rows;
    group.x = job.x + tile_begin / kTileRows * tile_bytes + step * Format::kActBytes * tile_rows +
              static_cast<std::size_t>(in_tile) * 4;
    group.acc = part.acc + static_cast<std::size_t>(row - range.begin) * kLanes;
    kernel_for<Format>(rows, blocks)(group);
    row += rows;
  }
}

inline void write_out(const MatmulJob& job, std::uint32_t row, std::uint32_t block,
                      const float* acc) {
  const std::uint32_t output = block * kLanes;
  const std::uint32_t left = job.weights.outputs - output;
  float* out = job.out + row * job.out_stride + output;
  if (left >= kLanes) {
    Lanes sum = load(acc);
    if (job.accumulate) sum = add(load(out), sum);
    store(out, sum);
    return;
  }
  for (std::uint32_t i = 0; i < left; ++i) out[i] = job.accumulate ? out[i] + acc[i] : acc[i];
}

// Unpacked weights that all rows use before the next ones are unpacked: half of a first level
// cache, so that a group's activations have room beside them.
constexpr std::size_t kHeldBytes = 16 * 1024;

// All inputs of a Format with Held; `part` has the accumulators.
template <class Format>
void multiply_unpacked(const MatmulJob& job, RowRange range, std::uint32_t block,
                       std::uint32_t blocks, Part part) {
  using Held = typename Format::Held;
  static_assert(Held::kActBytes == Format::kActBytes && Held::kRows == Format::kRows &&
                Held::kChains == Format::kChains);
  alignas(64) std::byte held[kHeldBytes];
  const std::uint32_t steps = steps_of(job);
  const std::size_t stride = steps * Format::kWeightBytes;
  const bool few = range.end - range.begin <= 2;
  const auto most = static_cast<std::uint32_t>(kHeldBytes / Held::kWeightBytes) / blocks;
  part.block_stride = most * Held::kWeightBytes;
  part.weights = held;
  for (std::uint32_t step = 0; step < steps; step += most) {
    part.steps = steps - step < most ? steps - step : most;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const std::byte* from = job.weights.data + (block + b) * stride + step * Format::kWeightBytes;
      std::byte* to = held + b * part.block_stride;
      for (std::uint32_t s = 0; s < part.steps; ++s) {
        if (few) {
          read_ahead<1, Format::kWeightBytes>(part, from);
        } else {
          read_ahead<kTileRows, Format::kWeightBytes>(part, from);
        }
        Format::unpack(from, to);
        from += Format::kWeightBytes;
        to += Held::kWeightBytes;
      }
    }
    multiply_rows<Held>(job, range, blocks, step, part);
  }
}

// Column blocks [block, block + blocks) for a range of rows.
template <class Format>
void multiply_blocks(const MatmulJob& job, RowRange range, std::uint32_t block,
                     std::uint32_t blocks) {
  const std::uint32_t rows = range.end - range.begin;
  alignas(64) float acc[kRowsAtOnce * kLanes];
  std::memset(acc, 0, static_cast<std::size_t>(rows) * blocks * kLanes * sizeof(float));

  Part part{};
  part.acc = acc;
  part.acc_stride = static_cast<std::size_t>(rows) * kLanes;
  part.few_ahead = !reads_ahead_by_itself();
  if constexpr (requires { typename Format::Held; }) {
    multiply_unpacked<Format>(job, range, block, blocks, part);
  } else {
    const std::uint32_t steps = steps_of(job);
    const bool one_pass = rows <= Format::kRows;
    constexpr std::uint32_t kCachedSteps =
        static_cast<std::uint32_t>(kCachedWeights<Format> / Format::kWeightBytes);
    const std::uint32_t range_steps = one_pass ? steps : kCachedSteps;
    part.block_stride = steps * Format::kWeightBytes;
    for (std::uint32_t step = 0; step < steps; step += range_steps) {
      part.weights = job.weights.data + block * part.block_stride + step * Format::kWeightBytes;
      part.steps = steps - step < range_steps ? steps - step : range_steps;
      multiply_rows<Format>(job, range, blocks, step, part);
    }
  }
  for (std::uint32_t b = 0; b < blocks; ++b) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      write_out(job, range.begin + row, block + b, acc + b * part.acc_stride + row * kLanes);
    }
  }
}

template <class Format>
void multiply_job(const MatmulJob& job) {
  for (std::uint32_t begin = 0; begin < job.rows; begin += kRowsAtOnce) {
    const std::uint32_t left = job.rows - begin;
    const RowRange range{begin, begin + (left < kRowsAtOnce ? left : kRowsAtOnce)};
    const std::uint32_t rows = range.end - range.begin;
    // One memory stream is best, but few rows may need the chains of several column blocks.
    const std::uint32_t most = rows * 4 <= Format::kChains && rows <= Format::kRows   ? 4
                               : rows * 2 <= Format::kChains && rows <= Format::kRows ? 2
                                                                                      : 1;
    for (std::uint32_t block = job.block_begin; block < job.block_end;) {
      std::uint32_t blocks = most;
      while (blocks > job.block_end - block) blocks /= 2;
      multiply_blocks<Format>(job, range, block, blocks);
      block += blocks;
    }
  }
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
