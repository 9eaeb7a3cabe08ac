#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace drafthouse {

// How one row of a matrix stands in memory before it is packed: as its file has it, except that the
// parts of a row which a file keeps in several tensors follow one another:
//
//   blocks      GGUF's kinds and plain numbers: layout_of(dtype) says all
//   affine      codes of `bits`, a bit stream, least bit first; then a scale of `scale` kind per
//               `group` inputs; then as many minima. value = scale × code + minimum
//   mxfp4_rows  E2M1 codes, two per byte, low nibble first; then an E8M0 byte per 32 inputs
//   f8_blocks   E4M3 bytes; then a scale of `scale` kind per `group` inputs, the last group may be
//               shorter. value = number × scale
struct RowFormat {
  constexpr RowFormat(Dtype kind) : dtype(kind) {}  // NOLINT: a kind that needs no more says it all
  constexpr RowFormat(Dtype kind, std::uint32_t code_bits, std::uint32_t group_inputs, Dtype scales)
      : dtype(kind), bits(code_bits), group(group_inputs), scale(scales) {}

  Dtype dtype;
  std::uint32_t bits = 0;    // affine: 2, 3, 4, 5, 6 or 8
  std::uint32_t group = 0;   // affine: 32, 64 or 128; f8_blocks: any
  Dtype scale = Dtype::f32;  // affine, f8_blocks: f32, f16 or bf16

  friend bool operator==(const RowFormat&, const RowFormat&) = default;
};

// Bytes of a row. Requires inputs to be a multiple of the format's group (f8_blocks: any).
std::uint64_t row_bytes(const RowFormat& format, std::uint64_t inputs);

// Inputs of a row must be a multiple of this.
std::uint32_t group_inputs(const RowFormat& format);

// What pack_block() makes of it: a kind that holds the same values.
Dtype packed_kind(const RowFormat& format);

// Whether packed values are bit for bit the format's own. False for f8_blocks with f32 scales only:
// their products have more bits than fp32.
bool packs_exactly(const RowFormat& format);

// "q4_k", "affine 4 bit g64 bf16".
std::string name_of(const RowFormat& format);

}  // namespace drafthouse
