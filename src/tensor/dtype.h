#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace drafthouse {

// How the numbers of a tensor are stored. Quantised kinds are GGUF's, in blocks along the
// innermost axis.
enum class Dtype : std::uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, i64, i32, u8, boolean };

// Values per block (1 for plain kinds) and bytes of one block.
struct DtypeLayout {
  std::uint32_t block_values;
  std::uint32_t block_bytes;
};

constexpr DtypeLayout layout_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return {1, 4};
    case Dtype::f16: return {1, 2};
    case Dtype::bf16: return {1, 2};
    case Dtype::q8_0: return {32, 34};
    case Dtype::q4_0: return {32, 18};
    case Dtype::q4_1: return {32, 20};
    case Dtype::i64: return {1, 8};
    case Dtype::i32: return {1, 4};
    case Dtype::u8: return {1, 1};
    case Dtype::boolean: return {1, 1};
  }
  return {1, 1};
}

// "bf16", "q8_0", …: the spelling of the command line and of JSON output.
std::string_view name_of(Dtype dtype);

// True for kinds that a matrix product accepts as weights.
constexpr bool is_weight(Dtype dtype) { return dtype <= Dtype::q4_1; }

}  // namespace drafthouse
