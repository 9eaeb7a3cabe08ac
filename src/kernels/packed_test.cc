#include "kernels/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/reordered.h"
#include "kernels/test_rows.h"

namespace drafthouse {
namespace {

using testing::all_formats;
using testing::Content;
using testing::inputs_for;
using testing::random_row;
using testing::RowReader;

using Rows = std::vector<std::vector<std::byte>>;

Rows random_rows(const RowFormat& format, std::uint32_t outputs, std::uint32_t inputs,
                 Content content = Content::plain) {
  std::mt19937 random(inputs + outputs);
  Rows rows;
  for (std::uint32_t o = 0; o < outputs; ++o) {
    rows.push_back(random_row(format, inputs, random, content));
  }
  return rows;
}

std::vector<std::byte> pack_all(const RowFormat& format, std::uint32_t inputs, const Rows& rows) {
  const auto outputs = static_cast<std::uint32_t>(rows.size());
  const Dtype kind = packed_kind(format);
  std::vector<std::byte> packed(packed_bytes(kind, outputs, inputs), std::byte{0xee});
  const std::size_t block_bytes = packed_block_bytes(kind, inputs);
  for (std::uint32_t block = 0; block < column_blocks(outputs); ++block) {
    const std::byte* of_block[kBlockOutputs] = {};
    for (std::uint32_t i = 0; i < kBlockOutputs; ++i) {
      const std::uint32_t output = block * kBlockOutputs + i;
      if (output < outputs) of_block[i] = rows[output].data();
    }
    pack_block(format, inputs, of_block, packed.data() + block * block_bytes);
  }
  return packed;
}

class Packed : public ::testing::TestWithParam<RowFormat> {};

TEST_P(Packed, UnpackGivesTheFilesValues) {
  const RowFormat format = GetParam();
  const bool plain = group_inputs(format) == 1;
  for (const std::uint32_t wanted : {32u, 64u, 96u, 192u, 576u, plain ? 77u : 160u}) {
    const std::uint32_t inputs = inputs_for(format, wanted);
    for (const std::uint32_t outputs : {1u, 16u, 21u}) {
      for (const Content content : {Content::plain, Content::extreme, Content::tiny}) {
        const Rows rows = random_rows(format, outputs, inputs, content);
        const std::vector<std::byte> packed = pack_all(format, inputs, rows);
        const PackedMatrix matrix{packed_kind(format), outputs, inputs, packed.data()};
        std::vector<float> out(inputs);
        for (std::uint32_t o = 0; o < outputs; ++o) {
          unpack_row(matrix, o, out.data());
          const std::vector<float> expected = RowReader(format, inputs, rows[o].data()).numbers();
          ASSERT_EQ(expected.size(), inputs);
          for (std::uint32_t k = 0; k < inputs; ++k) {
            ASSERT_EQ(out[k], expected[k]) << "output " << o << " input " << k;
          }
        }
      }
    }
  }
}

TEST_P(Packed, InputsCanComeInAnotherOrder) {
  const RowFormat format = GetParam();
  for (const std::uint32_t unit : {32u, 64u, 128u}) {
    const std::uint32_t inputs = inputs_for(format, 512);
    if (!can_reorder(format, unit) || inputs % unit != 0) continue;
    const Rows rows = random_rows(format, 1, inputs);
    const std::uint32_t units = inputs / unit;
    // Every second unit, then the others.
    std::vector<std::uint32_t> order, of_groups;
    for (std::uint32_t i = 0; i < units; ++i) {
      order.push_back(i < (units + 1) / 2 ? 2 * i : 2 * (i - (units + 1) / 2) + 1);
      for (std::uint32_t g = 0; g < unit / kGroupInputs; ++g) {
        of_groups.push_back(order.back() * (unit / kGroupInputs) + g);
      }
    }
    std::vector<std::byte> packed(packed_block_bytes(packed_kind(format), inputs));
    const std::byte* block[kBlockOutputs] = {rows[0].data()};
    pack_reordered(format, inputs, block, of_groups.data(), packed.data());
    std::vector<float> out(inputs);
    unpack_row({packed_kind(format), 1, inputs, packed.data()}, 0, out.data());
    const std::vector<float> stored = RowReader(format, inputs, rows[0].data()).numbers();
    for (std::uint32_t k = 0; k < inputs; ++k) {
      ASSERT_EQ(out[k], stored[order[k / unit] * unit + k % unit]) << "unit " << unit << " " << k;
    }
  }
  // What two groups share cannot be taken apart.
  EXPECT_EQ(can_reorder(format, 32),
            packed_kind(format) != Dtype::q2_k && packed_kind(format) != Dtype::q4_k &&
                packed_kind(format) != Dtype::q5_k && packed_kind(format) != Dtype::q6_k &&
                packed_kind(format) != Dtype::a4_64 && packed_kind(format) != Dtype::a8_64 &&
                is_grouped(packed_kind(format)));
  EXPECT_FALSE(can_reorder(format, 48));
}

TEST_P(Packed, MissingOutputsAndInputsAreZero) {
  const RowFormat format = GetParam();
  const std::uint32_t inputs = inputs_for(format, 96);
  const std::uint32_t outputs = 3;
  const std::vector<std::byte> packed =
      pack_all(format, inputs, random_rows(format, outputs, inputs));
  const PackedMatrix whole{packed_kind(format), kBlockOutputs, padded_inputs(inputs),
                           packed.data()};
  std::vector<float> out(whole.inputs);
  for (std::uint32_t o = 0; o < kBlockOutputs; ++o) {
    unpack_row(whole, o, out.data());
    for (std::uint32_t k = o < outputs ? inputs : 0; k < whole.inputs; ++k) {
      ASSERT_EQ(out[k], 0.0f) << "output " << o << " input " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Packed, ::testing::ValuesIn(all_formats()),
                         [](const auto& tested) { return testing::test_name(tested.param); });

}  // namespace
}  // namespace drafthouse
