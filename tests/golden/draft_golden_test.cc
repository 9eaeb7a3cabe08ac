// Drafts of every kind against the published reference code in float32: masks, windows, positions,
// context that grows between two blocks, short blocks; from a folder and from GGUF.
// (tests/data/README.md says how the values were made.)

#include <cstdlib>

#include "formats/test_files.h"
#include "tests/draft_folder.h"
#include "tests/golden/draft_fixture.h"

namespace drafthouse {
namespace {

using test::CheckpointFolder;
using test::DraftFixture;

std::string folder_of(const std::string& name) {
  return test::data_path(fmt::format("tiny-drafts/{}", name));
}

class Draft : public ::testing::TestWithParam<const char*> {};

TEST_P(Draft, BlocksEqualTheReference) {
  const std::string folder = folder_of(GetParam());
  ASSERT_FALSE(folder.empty());
  DraftFixture fixture(folder);
  test::check_blocks(fixture);
}

TEST_P(Draft, BlocksFromGgufEqualTheReference) {
  const std::string folder = folder_of(GetParam());
  ASSERT_FALSE(folder.empty());
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "no numpy";
  testing::TempFolder made;
  const std::string file = made / "draft.gguf";
  const std::string command = fmt::format(
      "python3 tools/make_draft_gguf.py {}/draft {} --name tiny --bf16 --llama-names >/dev/null",
      folder, file);
  ASSERT_EQ(std::system(command.c_str()), 0);
  DraftFixture fixture(folder, file);
  test::check_blocks(fixture);
}

INSTANTIATE_TEST_SUITE_P(Variants, Draft, ::testing::ValuesIn(test::kDraftVariants),
                         test::variant_name);

// At 32k positions a draft holds what its window and its sink have.
TEST(DraftMemory, At32kPositionsIsWindowAndSink) {
  constexpr std::uint32_t kLength = 32 * 1024;
  const DraftContext kept{.window = 1024, .sink = 64};
  DraftFixture fixture(folder_of("v1-full"));
  SequenceCache context = fixture.context(kept);
  std::size_t most = 0;
  while (context.length() < kLength) {
    // As turns append, and as a prompt does.
    const std::uint32_t rows = context.length() < 2048 ? 7 : 128;
    fixture.append(context, std::min(kLength - context.length(), rows));
    most = std::max(most, fixture.draft_pages());
  }
  ASSERT_TRUE(context.extend(0).ok());
  EXPECT_LE(fixture.draft_pages(), (kept.window + kept.sink) / kPageTokens);
  EXPECT_LE(most, (kept.window + kept.sink + 128) / kPageTokens) << "with the rows just appended";
  for (const float value : fixture.run_block(context, "p150", kept)) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

std::string bf16_bytes(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return testing::raw(static_cast<std::uint16_t>(bits >> 16));
}

// Puts made-up 4 bit codes in place of a matrix, in MLX's layout, and the values that they stand
// for into another checkpoint.
void quantise(CheckpointFolder& mlx, CheckpointFolder& plain, const std::string& name) {
  constexpr std::uint64_t kGroup = 32;
  CheckpointFolder::Tensor& matrix = plain.tensors[name];
  const std::uint64_t rows = matrix.shape[0];
  const std::uint64_t inputs = matrix.shape[1];
  const std::string base = name.substr(0, name.size() - std::string(".weight").size());
  std::string codes, scales, biases, values;
  for (std::uint64_t group = 0; group < rows * inputs / kGroup; ++group) {
    // Exact in bf16, and so are their products with codes and the sums.
    const float scale = static_cast<float>(1 + group * 7 % 5) / 128;
    const float bias = -8 * scale;
    scales += bf16_bytes(scale);
    biases += bf16_bytes(bias);
    std::uint32_t word = 0;
    for (std::uint32_t i = 0; i < kGroup; ++i) {
      const auto code = static_cast<std::uint32_t>((group * 31 + i * 11 + group * i * 3) % 16);
      word |= code << 4 * (i % 8);
      if (i % 8 == 7) {
        codes += testing::raw(word);
        word = 0;
      }
      values += testing::raw(scale * static_cast<float>(code) + bias);
    }
  }
  mlx.tensors[name] = {"U32", {rows, inputs / 8}, codes};
  mlx.tensors[base + ".scales"] = {"BF16", {rows, inputs / kGroup}, scales};
  mlx.tensors[base + ".biases"] = {"BF16", {rows, inputs / kGroup}, biases};
  matrix = {"F32", matrix.shape, values};
}

TEST(DraftFormats, MlxQuantisedDraftsAreReadAsTheirValues) {
  const std::string folder = folder_of("v1-full");
  CheckpointFolder plain = CheckpointFolder::read(folder + "/draft");
  CheckpointFolder mlx = plain;
  for (const auto& [name, tensor] : CheckpointFolder(plain).tensors) {
    if (tensor.shape.size() == 2) quantise(mlx, plain, name);
  }
  mlx.config["quantization"] = {{"bits", 4}, {"group_size", 32}};
  testing::TempFolder made;
  mlx.write(made / "mlx");
  plain.write(made / "plain");
  DraftFixture from_codes(folder, made / "mlx");
  DraftFixture from_values(folder, made / "plain");
  SequenceCache context = from_codes.context();
  SequenceCache other = from_values.context();
  from_codes.append(context, 70);
  from_values.append(other, 70);
  const std::vector<float> got = from_codes.run_block(context, "p70");
  const std::vector<float> want = from_values.run_block(other, "p70");
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-3f * std::max(1.0f, std::fabs(want[i]))) << i;
  }
}

}  // namespace
}  // namespace drafthouse
