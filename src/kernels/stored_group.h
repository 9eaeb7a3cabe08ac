#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/packed.h"
#include "tensor/row_format.h"

namespace drafthouse {

// 32 inputs of a row as its file stores them, ready for the packed kind of its format
// (packed_kind(format)): which of the scales are set depends on that kind's ScaleForm.
struct StoredGroup {
  std::uint8_t codes[kGroupInputs] = {};  // as packed: what they stand for, plus the kind's offset
  std::uint16_t scale16 = 0;              // half or bf16 bits; of k forms the first factor
  std::uint16_t minimum16 = 0;            // likewise
  std::int8_t sub_scale[2] = {};          // k forms: per 16 inputs, both alike for k32
  std::int8_t sub_minimum[2] = {};
  float scale = 0.0f;  // f32 forms
  float minimum = 0.0f;
};

// Group `group` of a row of `inputs` values. Requires is_grouped(packed_kind(format)).
StoredGroup read_group(const RowFormat& format, std::uint32_t inputs, const std::byte* row,
                       std::uint32_t group);

// The row's numbers, of formats whose packed kind is f32: out[inputs].
void read_numbers(const RowFormat& format, std::uint32_t inputs, const std::byte* row, float* out);

}  // namespace drafthouse
