#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tensor/half.h"

namespace drafthouse {
namespace {

struct Shape {
  Dtype kind;
  std::uint32_t inputs;
  std::uint32_t outputs;
};

std::size_t row_bytes(const Shape& shape) {
  const DtypeLayout layout = layout_of(shape.kind);
  return shape.inputs / layout.block_values * layout.block_bytes;
}

// Rows of random bytes, except that scales are finite halves.
std::vector<std::byte> random_rows(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(row_bytes(shape) * shape.outputs);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::uint32_t block_bytes = layout_of(shape.kind).block_bytes;
  if (block_bytes <= 4) return bytes;
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes) {
    for (std::size_t i = 1; i < (shape.kind == Dtype::q4_1 ? 4u : 2u); i += 2) {
      bytes[at + i] &= static_cast<std::byte>(0xbf);  // no exponent of 31
    }
  }
  return bytes;
}

std::uint16_t word_at(const std::byte* from) {
  std::uint16_t word;
  std::memcpy(&word, from, 2);
  return word;
}

// Input k of a row, by the file format's definition.
float value_in_file(Dtype kind, const std::byte* row, std::uint32_t k) {
  const DtypeLayout layout = layout_of(kind);
  const std::byte* block = row + k / layout.block_values * layout.block_bytes;
  const std::uint32_t i = k % layout.block_values;
  switch (kind) {
    case Dtype::f32: {
      float value;
      std::memcpy(&value, block, 4);
      return value;
    }
    case Dtype::f16: return half_to_float(word_at(block));
    case Dtype::bf16: return bf16_to_float(word_at(block));
    case Dtype::q8_0: {
      const int code = static_cast<std::int8_t>(block[2 + i]);
      return half_to_float(word_at(block)) * static_cast<float>(code);
    }
    default: break;
  }
  const std::byte* codes = block + (kind == Dtype::q4_0 ? 2 : 4);
  const int both = static_cast<int>(codes[i % 16]);
  const int code = i < 16 ? both & 15 : both >> 4;
  const float scale = half_to_float(word_at(block));
  if (kind == Dtype::q4_0) return scale * static_cast<float>(code - 8);
  return scale * static_cast<float>(code) + half_to_float(word_at(block + 2));
}

std::vector<std::byte> pack_all(const Shape& shape, const std::vector<std::byte>& rows) {
  std::vector<std::byte> packed(packed_bytes(shape.kind, shape.outputs, shape.inputs),
                                std::byte{0xee});
  const std::size_t block_bytes = packed_block_bytes(shape.kind, shape.inputs);
  for (std::uint32_t block = 0; block < column_blocks(shape.outputs); ++block) {
    const std::byte* of_block[kBlockOutputs] = {};
    for (std::uint32_t i = 0; i < kBlockOutputs; ++i) {
      const std::uint32_t output = block * kBlockOutputs + i;
      if (output < shape.outputs) of_block[i] = rows.data() + output * row_bytes(shape);
    }
    pack_block(shape.kind, shape.inputs, of_block, packed.data() + block * block_bytes);
  }
  return packed;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

class Packed : public testing::TestWithParam<Dtype> {};

TEST_P(Packed, UnpackGivesTheFilesValues) {
  const Dtype kind = GetParam();
  const bool blocked = layout_of(kind).block_values > 1;
  for (const std::uint32_t inputs : {32u, 64u, 96u, 192u, 576u, blocked ? 160u : 77u}) {
    for (const std::uint32_t outputs : {1u, 16u, 21u}) {
      const Shape shape{kind, inputs, outputs};
      const std::vector<std::byte> rows = random_rows(shape, inputs + outputs);
      const std::vector<std::byte> packed = pack_all(shape, rows);
      const PackedMatrix matrix{kind, outputs, inputs, packed.data()};
      std::vector<float> out(inputs);
      for (std::uint32_t o = 0; o < outputs; ++o) {
        unpack_row(matrix, o, out.data());
        for (std::uint32_t k = 0; k < inputs; ++k) {
          const float expected = value_in_file(kind, rows.data() + o * row_bytes(shape), k);
          ASSERT_EQ(bits_of(out[k]), bits_of(expected)) << "output " << o << " input " << k;
        }
      }
    }
  }
}

TEST_P(Packed, MissingOutputsAndInputsAreZero) {
  const Dtype kind = GetParam();
  const Shape shape{kind, 96, 3};
  const std::vector<std::byte> packed = pack_all(shape, random_rows(shape, 1));
  const PackedMatrix whole{kind, kBlockOutputs, padded_inputs(shape.inputs), packed.data()};
  std::vector<float> out(whole.inputs);
  for (std::uint32_t o = 0; o < kBlockOutputs; ++o) {
    unpack_row(whole, o, out.data());
    for (std::uint32_t k = o < shape.outputs ? shape.inputs : 0; k < whole.inputs; ++k) {
      ASSERT_EQ(out[k], 0.0f) << "output " << o << " input " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Packed,
                         testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0,
                                         Dtype::q4_0, Dtype::q4_1),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace drafthouse
