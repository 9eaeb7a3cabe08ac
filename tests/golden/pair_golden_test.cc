// Generated ids against an independent float32 implementation (transformers) on the same weights.
//
// Greedy choices are compared up to the first whose margin, in the oracle, is below what the path's
// rounding can move. Measured logit errors on these models: about 0.03 with bf16 inputs and 0.15
// with int8 inputs (root mean square), so the bounds below are several of those.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "drafthouse/engine.h"
#include "tests/f16_q4_1.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

using test::data_path;

constexpr double kBf16Margin = 0.15;
constexpr double kInt8Margin = 0.5;

std::unique_ptr<Engine> load(const std::string& target, const std::string& draft, bool fp32) {
  Result<std::unique_ptr<Engine>> engine =
      Engine::load({.target = target, .draft = draft, .compute_fp32 = fp32});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

struct Comparison {
  std::size_t cases = 0;
  std::size_t to_the_end = 0;
  double accepted = 0;
  double turns = 0;
  double accepted_golden = 0;
  double turns_golden = 0;
};

// Generates every case at `width` and checks it against the golden ids up to the first margin below
// `bound`.
Comparison compare(Engine& engine, const nlohmann::json& cases, std::uint32_t width, double bound) {
  Comparison total;
  for (const auto& item : cases) {
    const auto golden = item["greedy_ids"].get<std::vector<std::uint32_t>>();
    const auto margins = item["margins"].get<std::vector<double>>();
    GenerateRequest request;
    request.prompt_ids = item["prompt_ids"].get<std::vector<std::uint32_t>>();
    request.max_tokens = 96;
    request.width = width;
    const Result<GenerateResult> result = engine.generate(request);
    if (!result.ok()) {
      ADD_FAILURE() << result.status().message();
      continue;
    }
    const std::vector<std::uint32_t>& ids = result.value().ids;
    std::size_t sure = 0;
    while (sure < margins.size() && margins[sure] >= bound) ++sure;
    std::size_t same = 0;
    while (same < std::min(ids.size(), golden.size()) && ids[same] == golden[same]) ++same;
    EXPECT_GE(same, sure) << "case " << total.cases << " differs at " << same
                          << " where the margin is "
                          << (same < margins.size() ? margins[same] : 0.0);
    total.cases += 1;
    total.to_the_end += ids == golden ? 1 : 0;
    if (!item.contains("accepted_per_cycle")) continue;
    const auto& accepted = result.value().accepted_per_turn;
    total.accepted += std::accumulate(accepted.begin(), accepted.end(), 0.0);
    total.turns += static_cast<double>(accepted.size());
    for (const auto& count : item["accepted_per_cycle"]) {
      total.accepted_golden += count.get<double>();
      total.turns_golden += 1;
    }
  }
  return total;
}

TEST(NanoQwen3Golden, Fp32RunsToTheEndWithTheSameAcceptance) {
  const std::string root = data_path("models/nano-qwen3");
  auto engine = load(root + "/target", root + "/draft", true);
  ASSERT_NE(engine, nullptr);
  const Comparison c = compare(*engine, test::read_json(root + "/golden.json")["cases"], 16, 1e-3);
  EXPECT_GE(static_cast<double>(c.to_the_end), 0.95 * static_cast<double>(c.cases));
  EXPECT_NEAR(c.accepted / c.turns, c.accepted_golden / c.turns_golden,
              0.02 * c.accepted_golden / c.turns_golden);
}

TEST(NanoQwen3Golden, Bf16AgreesWhereTheMarginIsClear) {
  const std::string root = data_path("models/nano-qwen3");
  auto engine = load(root + "/target", root + "/draft", false);
  ASSERT_NE(engine, nullptr);
  compare(*engine, test::read_json(root + "/golden.json")["cases"], 0, kBf16Margin);
}

TEST(NanoQwen35Golden, Fp32RunsToTheEndWithTheSameAcceptance) {
  const std::string root = data_path("models/nano-qwen3_5");
  if (!std::filesystem::exists(root + "/target"))
    GTEST_SKIP() << "models/nano-qwen3_5/target is in the larger set of test data only";
  auto engine = load(root + "/target", root + "/draft", true);
  ASSERT_NE(engine, nullptr);
  const Comparison c = compare(*engine, test::read_json(root + "/golden.json")["cases"], 16, 1e-3);
  EXPECT_GE(static_cast<double>(c.to_the_end), 0.95 * static_cast<double>(c.cases));
  EXPECT_NEAR(c.accepted / c.turns, c.accepted_golden / c.turns_golden,
              0.02 * c.accepted_golden / c.turns_golden);
}

TEST(NanoQwen35Golden, Bf16AgreesWhereTheMarginIsClear) {
  const std::string root = data_path("models/nano-qwen3_5");
  if (!std::filesystem::exists(root + "/target"))
    GTEST_SKIP() << "models/nano-qwen3_5/target is in the larger set of test data only";
  auto engine = load(root + "/target", root + "/draft", false);
  ASSERT_NE(engine, nullptr);
  compare(*engine, test::read_json(root + "/golden.json")["cases"], 0, kBf16Margin);
}

TEST(NanoQwen3Golden, GgufFormats) {
  const std::string root = data_path("models/nano-qwen3");
  const nlohmann::json golden = test::read_json(root + "/gguf/golden.json");
  std::size_t cases = 0;
  std::size_t to_the_end = 0;
  for (const auto& [file, entry] : golden["files"].items()) {
    SCOPED_TRACE(file);
    for (const bool fp32 : {true, false}) {
      const bool written = file.find("F16-Q4_1") != std::string::npos;
      auto engine =
          load(written ? test::f16_q4_1_file() : root + "/gguf/" + file, root + "/draft", fp32);
      ASSERT_NE(engine, nullptr);
      const Comparison c = compare(*engine, entry["cases"], 16, fp32 ? 1e-3 : kInt8Margin);
      if (!fp32) continue;
      cases += c.cases;
      to_the_end += c.to_the_end;
    }
  }
  EXPECT_GE(static_cast<double>(to_the_end), 0.95 * static_cast<double>(cases));
}

// A Gemma 4 of sliding and full layers.
TEST(NanoGemma4Golden, AgreesWithTransformers) {
  const std::string root = data_path("models/nano-gemma4");
  if (!std::filesystem::exists(root + "/target"))
    GTEST_SKIP() << "models/nano-gemma4/target is in the larger set of test data only";
  const nlohmann::json cases = test::read_json(root + "/golden.json")["cases"];
  auto exact = load(root + "/target", root + "/draft", true);
  ASSERT_NE(exact, nullptr);
  const Comparison c = compare(*exact, cases, 16, 1e-3);
  EXPECT_GE(static_cast<double>(c.to_the_end), 0.95 * static_cast<double>(c.cases));
  EXPECT_NEAR(c.accepted / c.turns, c.accepted_golden / c.turns_golden,
              0.02 * c.accepted_golden / c.turns_golden);
  auto fast = load(root + "/target", root + "/draft", false);
  ASSERT_NE(fast, nullptr);
  compare(*fast, cases, 0, kBf16Margin);
}

// MLX's files, against MLX itself.
TEST(NanoQwen3Golden, MlxFormats) {
  const std::string draft = data_path("models/nano-qwen3") + "/draft";
  std::size_t cases = 0;
  std::size_t to_the_end = 0;
  for (const char* name : {"mixed", "4bit", "4bit-g32", "8bit"}) {
    SCOPED_TRACE(name);
    const std::string folder = data_path("models/nano-qwen3/target-mlx-" + std::string(name));
    if (folder.empty()) continue;
    const nlohmann::json golden = test::read_json(folder + "/golden.json");
    for (const bool fp32 : {true, false}) {
      auto engine = load(folder, draft, fp32);
      ASSERT_NE(engine, nullptr);
      const Comparison c = compare(*engine, golden["cases"], 16, fp32 ? 1e-3 : kInt8Margin);
      if (!fp32) continue;
      cases += c.cases;
      to_the_end += c.to_the_end;
    }
  }
  if (cases == 0)
    GTEST_SKIP() << "models/nano-qwen3/target-mlx-… is in the larger set of test data only";
  EXPECT_GE(static_cast<double>(to_the_end), 0.95 * static_cast<double>(cases));
}

// The other families as MLX stores them: names, norms and convolutions in a way of their own.
TEST(OtherFamiliesGolden, MlxFormats) {
  for (const char* name : {"nano-qwen3_5", "nano-gemma4"}) {
    SCOPED_TRACE(name);
    const std::string folder = data_path("models/" + std::string(name) + "/target-mlx-4bit");
    const nlohmann::json golden = test::read_json(folder + "/golden.json");
    for (const bool fp32 : {true, false}) {
      auto engine = load(folder, test::pair_paths(name).draft, fp32);
      ASSERT_NE(engine, nullptr);
      const Comparison c = compare(*engine, golden["cases"], 16, fp32 ? 1e-3 : kInt8Margin);
      EXPECT_GT(c.cases, 0u);
    }
  }
}

// The drafts of this repository are 8 bit, their originals bf16.
TEST(OtherFamiliesGolden, EightBitDraftsAreAcceptedAsOften) {
  for (const char* name : {"nano-qwen3_5", "nano-gemma4"}) {
    SCOPED_TRACE(name);
    const test::PairPaths whole = test::pair_paths(name);
    if (!whole.draft.ends_with("/draft"))
      GTEST_SKIP() << whole.draft << " has its original in the larger set of test data only";
    const nlohmann::json cases = test::read_json(whole.golden)["cases"];
    const std::string small = "tests/data/models/" + std::string(name) + "/draft.gguf";
    std::vector<double> accepted;
    for (const std::string& draft : {whole.draft, small}) {
      auto engine = load(whole.target, draft, true);
      ASSERT_NE(engine, nullptr);
      const Comparison c = compare(*engine, cases, 16, 1e-3);
      accepted.push_back(c.accepted / c.turns);
    }
    EXPECT_NEAR(accepted[1], accepted[0], 0.02 * accepted[0]);
    RecordProperty(name, std::to_string(accepted[0]) + " / " + std::to_string(accepted[1]));
  }
}

TEST(SmolLm2Golden, DefaultPair) {
  const std::string target = test::default_model();
  if (target.empty())
    GTEST_SKIP() << "the default model is not here; tools/fetch_default_model gets it";
  const nlohmann::json golden = test::read_json(data_path("models/smollm2-135m/golden.json"));
  auto exact = load(target, test::kDefaultDraft, true);
  ASSERT_NE(exact, nullptr);
  const Comparison fp32 = compare(*exact, golden["cases"], 16, 1e-3);
  EXPECT_GE(static_cast<double>(fp32.to_the_end), 0.95 * static_cast<double>(fp32.cases));
  // The draft in the repository is 8 bit; the golden one is its bf16 original.
  EXPECT_NEAR(fp32.accepted / fp32.turns, fp32.accepted_golden / fp32.turns_golden,
              0.02 * fp32.accepted_golden / fp32.turns_golden);
  auto fast = load(target, test::kDefaultDraft, false);
  ASSERT_NE(fast, nullptr);
  compare(*fast, golden["cases"], 0, kInt8Margin);
}

TEST(SmolLm2Golden, Perplexity) {
  const std::string target = test::default_model();
  if (target.empty())
    GTEST_SKIP() << "the default model is not here; tools/fetch_default_model gets it";
  const nlohmann::json nll = test::read_json(data_path("models/smollm2-135m/golden.json"))["nll"];
  for (const bool fp32 : {true, false}) {
    auto engine = load(target, "", fp32);
    ASSERT_NE(engine, nullptr);
    const Result<ScoreResult> score =
        engine->score({.ids = nll["ids"].get<std::vector<std::uint32_t>>()});
    ASSERT_TRUE(score.ok());
    const auto& p = score.value().logprob;
    const double mean = -std::accumulate(p.begin(), p.end(), 0.0) / static_cast<double>(p.size());
    EXPECT_NEAR(mean, nll["mean"].get<double>(), fp32 ? 1e-3 : 0.02);
  }
}

}  // namespace
}  // namespace drafthouse
