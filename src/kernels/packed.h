#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

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
//   q8_0  per pair of groups:  2 × 16 half scales, then
//                              2 × [8 quads × 16 outputs × 4 inputs, value + 128 as u8]  1088 bytes
//   q4_0, q4_1 per pair:       2 × 16 half scales (q4_1: then 2 × 16 half minima), then
//                              2 × [4 × 64 bytes: low nibbles quad 2i, high nibbles quad 2i+1]
//                                                                            576 / 640 bytes
// Scales stand first so that a product reads every line in ascending order.
// Codes of q4_0 and q4_1 are the file's 0..15 (q4_0 means code − 8). Outputs past the last are zero.
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
  switch (kind) {
    case Dtype::f32: return k * 64;
    case Dtype::f16: return k * 32;
    case Dtype::bf16: return k * 32;
    case Dtype::q8_0: return k / 64 * 1088;
    case Dtype::q4_0: return k / 64 * 576;
    case Dtype::q4_1: return k / 64 * 640;
    default: return 0;
  }
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

// Packs one column block. rows[i] is output i as the file stores it (row-major, GGUF blocks for
// quantised kinds), or null for zeros. `block` has packed_block_bytes(kind, inputs).
void pack_block(Dtype kind, std::uint32_t inputs, const std::byte* const rows[kBlockOutputs],
                std::byte* block);

// Output row `output` of the matrix as floats, exactly the values that the file stores: out[inputs].
void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* out);

// What a matrix product's input is rounded to (design section 4).
enum class ActKind : std::uint8_t {
  f32,   // as it is
  bf16,  // rounded to bfloat16
  int8,  // per 32 inputs: absmax / 127, symmetric, ties to even
};

constexpr ActKind act_kind_for(Dtype weights, bool compute_fp32) {
  if (compute_fp32) return ActKind::f32;
  switch (weights) {
    case Dtype::bf16: return ActKind::bf16;
    case Dtype::q8_0:
    case Dtype::q4_0:
    case Dtype::q4_1: return ActKind::int8;
    default: return ActKind::f32;
  }
}

// Activations are packed in tiles of up to kTileRows rows, in units of 4 bytes: one float, two
// bfloat16 (k, k+1) or four int8 (k … k+3). In a tile of R rows, units of one k stand side by side:
//
//   f32, bf16:  unit u of row r at (u × R + r) × 4
//   int8:       per 32-input group 10 × R units: 8 × R of codes, R scales (float), R sums of the
//               group's codes (int32)
//
// Inputs are padded with zeros to a multiple of 64. Tile t of a matrix starts at t × act_tile_bytes.
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
