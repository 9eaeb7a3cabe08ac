// Ids are the target's whatever the draft: every variant at every width, greedy and drawn, against
// no draft. The weights are random, so few proposals stand; with hot draws from flat distributions
// the noise that both sides share makes many agree.

#include <gtest/gtest.h>

#include <algorithm>

#include "drafthouse/engine.h"
#include "tests/draft_folder.h"

namespace drafthouse {
namespace {

const char* const kTarget = "tiny/gemma4-e";
constexpr std::uint32_t kTokens = 96;

GenerateRequest request(std::uint32_t width, SamplingOptions sampling) {
  GenerateRequest request;
  for (std::uint32_t i = 0; i < 90; ++i) request.prompt_ids.push_back((i * 37 + 11) % 250);
  request.max_tokens = kTokens;
  request.width = width;
  request.ignore_eos = true;
  request.sampling = sampling;
  return request;
}

class DraftVariant : public ::testing::TestWithParam<const char*> {};

TEST_P(DraftVariant, IdsAreTheTargetsAtEveryWidth) {
  const std::string target = test::data_path(kTarget);
  ASSERT_FALSE(target.empty());
  testing::TempFolder folder;
  test::draft_of_six_layers(GetParam()).write(folder / "draft");
  const auto load = [&](const std::string& with) {
    return Engine::load({.target = target, .draft = with, .threads = 2, .context = 256});
  };
  const auto plain = load("");
  const auto pair = load(folder / "draft");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  ASSERT_TRUE(pair.ok()) << pair.status().message();

  const SamplingOptions hot = {.temperature = 8, .seed = 7};
  for (const SamplingOptions& sampling :
       {SamplingOptions{}, SamplingOptions{.temperature = 1, .top_k = 20, .seed = 3}, hot}) {
    const auto want = plain.value()->generate(request(1, sampling));
    ASSERT_TRUE(want.ok()) << want.status().message();
    for (const std::uint32_t width : {0u, 1u, 2u, 5u, pair.value()->info().block_size}) {
      const auto got = pair.value()->generate(request(width, sampling));
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_EQ(got.value().ids, want.value().ids) << "width " << width;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftVariant, ::testing::ValuesIn(test::kDraftVariants),
                         test::variant_name);

}  // namespace
}  // namespace drafthouse
