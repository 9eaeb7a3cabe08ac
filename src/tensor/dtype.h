#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace drafthouse {

// How the numbers of a tensor are stored: in a file, packed for the kernels, or both.
enum class Dtype : std::uint8_t {
  // In files and packed.
  f32,
  f16,
  bf16,
  q8_0,  // GGUF's, in blocks along the innermost axis, as all that follow unless said
  q4_0,
  q4_1,
  // No weights.
  i64,
  i32,
  u8,
  boolean,
  u32,
  f8_e4m3,
  // In files and packed: GGUF's super-blocks of 256 values.
  q2_k,
  q4_k,
  q5_k,
  q6_k,
  // In files only.
  q3_k,
  q5_0,
  q5_1,
  iq4_nl,
  iq4_xs,
  mxfp4,
  affine,      // a row is its codes, its scales and its minima (tensor/row_format.h); MLX's
  mxfp4_rows,  // a row is its codes, then its scales
  f8_blocks,   // a row is its E4M3 values, then its scales
  // Packed only (kernels/packed.h): bits of a code, a for affine, s for scale alone, group.
  a4_64,
  a4_32,
  a8_64,
  a8_32,
  s8_32,
};
inline constexpr std::size_t kDtypeCount = static_cast<std::size_t>(Dtype::s8_32) + 1;

// Values per block (1 for plain kinds) and bytes of one block.
struct DtypeLayout {
  std::uint32_t block_values;
  std::uint32_t block_bytes;
};

// Of kinds whose rows are blocks, one after the other.
constexpr DtypeLayout layout_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::i32:
    case Dtype::u32: return {1, 4};
    case Dtype::f16:
    case Dtype::bf16: return {1, 2};
    case Dtype::i64: return {1, 8};
    case Dtype::u8:
    case Dtype::boolean:
    case Dtype::f8_e4m3: return {1, 1};
    case Dtype::q8_0: return {32, 34};
    case Dtype::q4_0: return {32, 18};
    case Dtype::q4_1: return {32, 20};
    case Dtype::q5_0: return {32, 22};
    case Dtype::q5_1: return {32, 24};
    case Dtype::iq4_nl: return {32, 18};
    case Dtype::mxfp4: return {32, 17};
    case Dtype::q2_k: return {256, 84};
    case Dtype::q3_k: return {256, 110};
    case Dtype::q4_k: return {256, 144};
    case Dtype::q5_k: return {256, 176};
    case Dtype::q6_k: return {256, 210};
    case Dtype::iq4_xs: return {256, 136};
    default: return {1, 1};
  }
}

// "bf16", "q8_0", …: the spelling of the command line and of JSON output.
std::string_view name_of(Dtype dtype);

// True for kinds of files that a matrix product accepts as weights, once packed.
constexpr bool is_weight(Dtype dtype) {
  return dtype <= Dtype::q4_1 || (dtype >= Dtype::q2_k && dtype <= Dtype::f8_blocks);
}

}  // namespace drafthouse
