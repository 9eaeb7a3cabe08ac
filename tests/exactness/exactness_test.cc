// The first promise: what a pair computes for a position does not depend on how many rows were
// computed with it, by how many threads, in which chunks, or with which draft. Everything here is
// compared bit for bit.

#include <gtest/gtest.h>

#include <algorithm>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "engine/synthetic.h"
#include "tests/exactness/real_pairs.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

using test::must;
using test::real_pairs;
using test::RealPair;
using test::some_ids;
using test::State;
using test::state_of;

std::vector<Isa> usable_isas() {
  std::vector<Isa> usable;
  for (const Isa isa : built_isas()) {
    if (cpu_has(isa)) usable.push_back(isa);
  }
  return usable;
}

// A small model of odd sizes: inputs that need padding, heads in groups of three, a second page.
// Formats whose groups are longer get the next sizes that they can have.
ModelConfig small_shape(const std::string& family, const RowFormat& format = Dtype::f32) {
  const std::uint32_t group = std::max(32u, group_inputs(format));
  const auto sized = [&](std::uint32_t inputs) { return (inputs + group - 1) / group * group; };
  ModelConfig c;
  c.family = family;
  c.hidden_size = sized(96);
  c.layers = 3;
  c.heads = sized(192) / 32;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate_size = sized(160);
  c.vocab_size = 500;
  c.max_positions = 2048;
  c.tied_head = family == "llama";
  if (family == "llama") {
    c.rope = {.theta = 10000.0,
              .scaling = RopeScaling::llama3,
              .factor = 8.0,
              .low_freq_factor = 1.0,
              .high_freq_factor = 4.0,
              .original_max_positions = 32,
              .attention_factor = {},
              .divisors = {}};
  }
  return c;
}

std::vector<double> logprobs(Engine& engine, const std::vector<std::uint32_t>& ids,
                             std::uint32_t width) {
  const Result<ScoreResult> score = engine.score({.ids = ids, .width = width});
  EXPECT_TRUE(score.ok()) << (score.ok() ? "" : score.status().message());
  return score.ok() ? score.value().logprob : std::vector<double>{};
}

class EveryFormat : public ::testing::TestWithParam<std::tuple<std::string, RowFormat>> {};

TEST_P(EveryFormat, LogitsDoNotDependOnWidthThreadsOrChunks) {
  const auto& [family, format] = GetParam();
  const SyntheticPair pair{.name = "small",
                           .target = small_shape(family, format),
                           .format = format,
                           .with_draft = false};
  const std::vector<std::uint32_t> ids = some_ids(test::full_run() ? 1200 : 210, 500);
  for (const Isa isa : usable_isas()) {
    for (const bool fp32 : {false, true}) {
      SCOPED_TRACE(std::string(name_of(isa)) + (fp32 ? " fp32" : ""));
      EngineOptions options{.threads = 1, .compute_fp32 = fp32, .isa = std::string(name_of(isa))};
      auto alone = must(make_synthetic_engine(pair, options));
      ASSERT_NE(alone, nullptr);
      const std::vector<double> want = logprobs(*alone, ids, 1);
      options.threads = 2;
      auto engine = must(make_synthetic_engine(pair, options));
      ASSERT_NE(engine, nullptr);
      for (const std::uint32_t width : {1u, 2u, 3u, 5u, 16u, 17u, 64u, 100u, 512u}) {
        EXPECT_EQ(logprobs(*engine, ids, width), want) << "width " << width;
      }
    }
  }
}

std::string name_of_case(
    const ::testing::TestParamInfo<std::tuple<std::string, RowFormat>>& tested) {
  std::string name = std::get<0>(tested.param) + "_" + name_of(std::get<1>(tested.param));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFormat,
                         ::testing::Combine(::testing::Values("llama", "qwen3"),
                                            ::testing::Values<RowFormat>(Dtype::f32, Dtype::f16,
                                                                         Dtype::bf16, Dtype::q8_0,
                                                                         Dtype::q4_0, Dtype::q4_1)),
                         name_of_case);

INSTANTIATE_TEST_SUITE_P(
    OtherKinds, EveryFormat,
    ::testing::Combine(::testing::Values("qwen3"),
                       ::testing::Values(RowFormat(Dtype::q2_k), RowFormat(Dtype::q4_k),
                                         RowFormat(Dtype::q5_k), RowFormat(Dtype::q6_k),
                                         RowFormat(Dtype::mxfp4),
                                         RowFormat(Dtype::affine, 4, 64, Dtype::bf16),
                                         RowFormat(Dtype::affine, 4, 32, Dtype::bf16),
                                         RowFormat(Dtype::affine, 8, 64, Dtype::bf16),
                                         RowFormat(Dtype::affine, 5, 32, Dtype::f32))),
    name_of_case);

std::vector<std::uint32_t> generate(Engine& engine, const nlohmann::json& prompt,
                                    std::uint32_t width, std::uint32_t tokens) {
  GenerateRequest request;
  request.prompt_ids = prompt.get<std::vector<std::uint32_t>>();
  request.max_tokens = tokens;
  request.width = width;
  request.ignore_eos = true;
  const Result<GenerateResult> result = engine.generate(request);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.status().message());
  return result.ok() ? result.value().ids : std::vector<std::uint32_t>{};
}

// Accepted proposals make later rows of a pass count, so real drafts are needed here.
TEST(Ids, DoNotDependOnSpeculationWidthOrThreads) {
  const std::uint32_t tokens = test::full_run() ? 200 : 64;
  const std::size_t step = test::full_run() ? 1 : 3;
  for (const RealPair& pair : real_pairs()) {
    SCOPED_TRACE(pair.target);
    auto plain = must(Engine::load({.target = pair.target, .threads = 2}));
    ASSERT_NE(plain, nullptr);
    std::vector<std::vector<std::uint32_t>> want;
    for (std::size_t i = 0; i < pair.cases.size(); i += step) {
      want.push_back(generate(*plain, pair.cases[i]["prompt_ids"], 0, tokens));
      EXPECT_EQ(want.back().size(), tokens);
    }
    for (const unsigned threads : {1u, 2u}) {
      auto engine = must(Engine::load({.target = pair.target,
                                       .draft = pair.draft,
                                       .threads = threads,
                                       .prefill_chunk = threads == 1 ? 37u : 0u}));
      ASSERT_NE(engine, nullptr);
      for (const std::uint32_t width : {1u, 2u, 5u, 16u, 0u}) {
        for (std::size_t i = 0, at = 0; i < pair.cases.size(); i += step, ++at) {
          EXPECT_EQ(generate(*engine, pair.cases[i]["prompt_ids"], width, tokens), want[at])
              << "case " << i << " width " << width << " threads " << threads;
        }
      }
    }
  }
}

TEST(State, IsTheSameHoweverAPromptIsCut) {
  for (const RealPair& pair : real_pairs()) {
    SCOPED_TRACE(pair.target);
    const auto prompt = test::longest_prompt(pair);
    State whole;
    for (const std::uint32_t chunk : {100000u, 64u, 128u, 37u, 1u}) {
      if (chunk == 1 && prompt.size() > 400 && !test::full_run()) continue;
      auto engine =
          must(Engine::load({.target = pair.target, .draft = pair.draft, .prefill_chunk = chunk}));
      ASSERT_NE(engine, nullptr);
      TurnRunner& runner = *engine->internals().runner;
      Sequence sequence = runner.start(true).value();
      ASSERT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
      const State state = state_of(runner, sequence);
      ASSERT_FALSE(state.target.empty());
      if (whole.ids.empty()) whole = state;
      EXPECT_EQ(state.ids, whole.ids);
      EXPECT_TRUE(state.target == whole.target) << "target pages, chunk " << chunk;
      EXPECT_TRUE(state.draft == whole.draft) << "draft pages, chunk " << chunk;
    }
  }
}

// Positions that a verify pass wrote hold the bytes that a prefill of the same ids writes.
TEST(State, OfGeneratedPositionsEqualsThatOfAPrompt) {
  for (const RealPair& pair : real_pairs()) {
    SCOPED_TRACE(pair.target);
    auto engine = must(Engine::load({.target = pair.target, .draft = pair.draft}));
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    Sequence grown = runner.start(true).value();
    ASSERT_TRUE(
        runner
            .prefill(grown, pair.cases[2]["prompt_ids"].get<std::vector<std::uint32_t>>(), nullptr)
            .ok());
    for (std::uint32_t turn = 0; grown.ids.size() < 200; ++turn) {
      ASSERT_TRUE(runner.take_turn(grown, 1 + turn % 16, nullptr).ok());
    }
    ASSERT_TRUE(runner.settle(grown).ok());
    const std::vector<std::uint32_t> ids(grown.ids.begin(), grown.ids.end() - 1);
    Sequence fed = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(fed, ids, nullptr).ok());
    EXPECT_EQ(fed.ids, grown.ids);
    const State a = state_of(runner, grown);
    const State b = state_of(runner, fed);
    ASSERT_FALSE(a.target.empty());
    EXPECT_TRUE(a.target == b.target);
    EXPECT_TRUE(a.draft == b.draft);
  }
}

}  // namespace
}  // namespace drafthouse
