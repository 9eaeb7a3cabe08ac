#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/grouped.h"
#include "tensor/dtype.h"
#include "tensor/row_format.h"

namespace drafthouse {

// Weights are packed once, at load, and serve every width: a pass reads each packed byte once,
// whether it computes one row or five hundred.
//
// A packed matrix is a run of column blocks. A block holds kBlockOutputs outputs over all inputs,
// inputs padded with zeros to a multiple of 64, in `pairs` of two 32-input groups:
//
//   f32   per input k:         16 floats
//   f16   per input k:         16 halves
//   bf16  per input pair k,k+1: 16 × (k, k+1)                                      64 bytes
//   other kinds, per pair of groups: their scales, then their codes (grouped.h)
//
// Scales stand first so that a product reads every line in ascending order. Outputs past the last
// are zero.
inline constexpr std::uint32_t kBlockOutputs = 16;
inline constexpr std::uint32_t kGroupInputs = 32;
inline constexpr std::uint32_t kInputPadding = 64;

constexpr std::uint32_t padded_inputs(std::uint32_t inputs) {
  return (inputs + kInputPadding - 1) / kInputPadding * kInputPadding;
}
constexpr std::uint32_t column_blocks(std::uint32_t outputs) {
  return (outputs + kBlockOutputs - 1) / kBlockOutputs;
}

// Bytes of one column block.
constexpr std::size_t packed_block_bytes(Dtype kind, std::uint32_t inputs) {
  const std::size_t k = padded_inputs(inputs);
  if (kind == Dtype::f32) return k * 64;
  if (kind == Dtype::f16 || kind == Dtype::bf16) return k * 32;
  return is_grouped(kind) ? k / kInputPadding * pair_bytes(grouped_kind(kind)) : 0;
}
constexpr std::size_t packed_bytes(Dtype kind, std::uint32_t outputs, std::uint32_t inputs) {
  return column_blocks(outputs) * packed_block_bytes(kind, inputs);
}

// A view of packed weights; the bytes are 64-byte aligned and belong to somebody else.
struct PackedMatrix {
  Dtype kind = Dtype::bf16;
  std::uint32_t outputs = 0;
  std::uint32_t inputs = 0;
  const std::byte* data = nullptr;

  std::size_t bytes() const { return packed_bytes(kind, outputs, inputs); }
};

// Packs one column block into the kind packed_kind(from). rows[i] is output i as the file stores
// it, or null for zeros; inputs are a multiple of group_inputs(from), of 32 unless numbers are
// plain. `block` has packed_block_bytes(kind, inputs).
void pack_block(const RowFormat& from, std::uint32_t inputs,
                const std::byte* const rows[kBlockOutputs], std::byte* block);

// Output row `output` of the matrix as floats, exactly the values that the file stores:
// out[inputs].
void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* out);

// What a matrix product's input is rounded to (design section 4).
enum class ActKind : std::uint8_t {
  f32,   // as it is
  bf16,  // rounded to bfloat16
  int8,  // per 32 inputs: absmax / 127, symmetric, ties to even
};

// `weights` is a packed kind.
constexpr ActKind act_kind_for(Dtype weights, bool compute_fp32) {
  if (compute_fp32) return ActKind::f32;
  if (weights == Dtype::bf16) return ActKind::bf16;
  return is_grouped(weights) ? ActKind::int8 : ActKind::f32;
}

// Activations are packed in tiles of up to kTileRows rows, in units of 4 bytes: one float, two
// bfloat16 (k, k+1) or four int8 (k … k+3). In a tile of R rows, units of one k stand side by side:
//
//   f32, bf16:  unit u of row r at (u × R + r) × 4
//   int8:       per 32-input group 10 × R units: 8 × R of codes, R scales (float), R sums of the
//               group's codes (int32)
//
// Inputs are padded with zeros to a multiple of 64. Tile t of a matrix starts at t ×
// act_tile_bytes.
inline constexpr std::uint32_t kTileRows = 16;

constexpr std::size_t act_tile_bytes(ActKind kind, std::uint32_t inputs) {
  const std::size_t k = padded_inputs(inputs);
  switch (kind) {
    case ActKind::f32: return k * kTileRows * 4;
    case ActKind::bf16: return k / 2 * kTileRows * 4;
    case ActKind::int8: return k / kGroupInputs * 10 * kTileRows * 4;
  }
  return 0;
}
constexpr std::size_t act_bytes(ActKind kind, std::uint32_t rows, std::uint32_t inputs) {
  return (rows + kTileRows - 1) / kTileRows * act_tile_bytes(kind, inputs);
}

}  // namespace drafthouse
