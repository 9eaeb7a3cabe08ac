// Targets with recurrent layers: nothing that a pair computes depends on how many rows were
// computed together, by how many threads, in which chunks, on which kernels, or from a checkpoint.
// Everything is compared bit for bit.

#include <gtest/gtest.h>

#include <random>

#include "engine/internals.h"
#include "engine/synthetic.h"
#include "tests/exactness/real_pairs.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

using test::must;
using test::some_ids;
using test::State;
using test::state_of;

constexpr std::uint32_t kVocabulary = 500;

ModelConfig shape_of(const std::string& family) {
  ModelConfig c;
  c.family = family;
  c.hidden_size = 96;
  c.layers = 4;
  c.heads = 3;
  c.kv_heads = 1;
  c.head_dim = 32;
  c.intermediate_size = 160;
  c.vocab_size = kVocabulary;
  c.max_positions = 2048;
  c.tied_head = true;
  LayerKind kind = LayerKind::convolution;
  if (family == "lfm2") {
    c.recurrent.kernel = 3;
  } else {
    c.rope.rotary_dim = 8;
    c.gain_from_one = true;
    c.attention_gate = true;
    c.recurrent = {.kernel = 4, .key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 16};
    kind = LayerKind::delta_rule;
  }
  c.layer_table.assign(4, c.layer(0));
  for (const std::size_t i : {0u, 1u, 3u}) c.layer_table[i].kind = kind;
  if (family == "qwen3_next") {
    c.experts = {.count = 6, .per_row = 2, .intermediate_size = 64};
    for (LayerConfig& layer : c.layer_table) layer.experts = true;
  }
  return c;
}

std::unique_ptr<Engine> engine_of(const std::string& family, Dtype format, bool draft,
                                  const EngineOptions& options) {
  return must(make_synthetic_engine(
      {.name = family, .target = shape_of(family), .format = format, .with_draft = draft},
      options));
}

class Recurrent : public ::testing::TestWithParam<std::string> {};

TEST_P(Recurrent, LogitsDoNotDependOnWidthThreadsOrInstructionSet) {
  const std::vector<std::uint32_t> ids = some_ids(test::full_run() ? 210 : 140, kVocabulary);
  for (const Dtype format : {Dtype::bf16, Dtype::q8_0}) {
    for (const Isa isa : built_isas()) {
      if (!cpu_has(isa)) continue;
      SCOPED_TRACE(std::string(name_of(isa)));
      std::vector<double> want;
      for (const unsigned threads : {1u, 2u}) {
        auto engine = engine_of(GetParam(), format, false,
                                {.threads = threads, .isa = std::string(name_of(isa))});
        ASSERT_NE(engine, nullptr);
        for (const std::uint32_t width : {1u, 2u, 5u, 16u, 64u, 512u}) {
          if (threads == 1 && width > 1) break;
          const Result<ScoreResult> score = engine->score({.ids = ids, .width = width});
          ASSERT_TRUE(score.ok()) << score.status().message();
          const std::vector<double>& got = score.value().logprob;
          if (want.empty()) want = got;
          EXPECT_EQ(got, want) << "width " << width << ", threads " << threads;
        }
      }
    }
  }
}

TEST_P(Recurrent, StateAndIdsAreTheSameHoweverTheyCameToBe) {
  const std::vector<std::uint32_t> prompt = some_ids(300, kVocabulary);
  State whole;
  for (const std::uint32_t chunk : {512u, 128u, 64u, 37u, 1u}) {
    auto engine = engine_of(GetParam(), Dtype::bf16, true, {.prefill_chunk = chunk});
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    Sequence sequence = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
    for (std::uint32_t turn = 0; sequence.ids.size() < 400; ++turn) {
      ASSERT_TRUE(runner.take_turn(sequence, 1 + (turn * chunk) % 16, nullptr).ok());
    }
    runner.truncate(sequence, 390);
    ASSERT_TRUE(runner.settle(sequence).ok());
    const State state = state_of(runner, sequence);
    ASSERT_FALSE(state.target.empty());
    if (whole.ids.empty()) whole = state;
    EXPECT_EQ(state.ids, whole.ids) << "chunk " << chunk;
    EXPECT_TRUE(state.target == whole.target) << "chunk " << chunk;
    EXPECT_TRUE(state.draft == whole.draft) << "chunk " << chunk;
  }
}

TEST_P(Recurrent, SequencesOfABatchGoTheirOwnWays) {
  auto engine = engine_of(GetParam(), Dtype::bf16, true, {.threads = 2, .sequences = 5});
  ASSERT_NE(engine, nullptr);
  TurnRunner& runner = *engine->internals().runner;
  std::vector<Sequence> alone, together;
  for (std::size_t i = 0; i < 5; ++i) {
    std::vector<std::uint32_t> prompt = some_ids(50 + 30 * i, kVocabulary);
    prompt[3] = static_cast<std::uint32_t>(i);
    for (std::vector<Sequence>* list : {&alone, &together}) {
      list->push_back(runner.start(true).value());
      ASSERT_TRUE(runner.prefill(list->back(), prompt, nullptr).ok());
    }
    while (alone[i].ids.size() < prompt.size() + 90) {
      ASSERT_TRUE(runner.take_turn(alone[i], 1, nullptr).ok());
    }
  }
  std::mt19937 random(2);
  for (int turn = 0; turn < 89; ++turn) {
    std::vector<TurnJob> jobs;
    for (std::size_t i = 0; i < 5; ++i) {
      if (together[i].ids.size() >= alone[i].ids.size()) continue;
      jobs.push_back(
          {.sequence = &together[i], .width = 1 + static_cast<std::uint32_t>(random() % 16)});
    }
    if (jobs.empty()) break;
    ASSERT_TRUE(runner.take_turns(jobs, nullptr).ok());
  }
  for (std::size_t i = 0; i < 5; ++i) {
    const std::size_t count = std::min(alone[i].ids.size(), together[i].ids.size());
    EXPECT_TRUE(std::equal(alone[i].ids.begin(),
                           alone[i].ids.begin() + static_cast<std::ptrdiff_t>(count),
                           together[i].ids.begin()))
        << i;
  }
}

TEST_P(Recurrent, AnAdoptedCheckpointIsGoneOnFromAsIfNothingHadHappened) {
  const std::vector<std::uint32_t> prompt = some_ids(300, kVocabulary);
  auto engine = engine_of(GetParam(), Dtype::bf16, true, {});
  ASSERT_NE(engine, nullptr);
  TurnRunner& runner = *engine->internals().runner;
  Sequence first = runner.start(true).value();
  first.target.want_checkpoints(2, {});
  ASSERT_TRUE(runner.prefill(first, prompt, nullptr).ok());
  PrefixPages shared;
  for (const SequenceCache* cache : {&first.target, &*first.draft}) {
    for (std::uint32_t group = 0; group < cache->groups(); ++group) {
      shared.emplace_back();
      for (std::uint32_t page = 0; page < 2; ++page) {
        shared.back().push_back(cache->share(group, page));
      }
    }
  }
  Sequence adopted = runner.start(true).value();
  runner.adopt(adopted, 2 * kPageTokens, shared);
  ASSERT_TRUE(runner.prefill(adopted, prompt, nullptr).ok());
  for (Sequence* each : {&first, &adopted}) {
    while (each->ids.size() < 400) {
      ASSERT_TRUE(runner.take_turn(*each, each == &first ? 1 : 5, nullptr).ok());
    }
    runner.truncate(*each, 400);
    ASSERT_TRUE(runner.settle(*each).ok());
  }
  EXPECT_EQ(adopted.ids, first.ids);
  EXPECT_TRUE(state_of(runner, adopted).target == state_of(runner, first).target);
}

INSTANTIATE_TEST_SUITE_P(Families, Recurrent, ::testing::Values("qwen3_5", "qwen3_next", "lfm2"),
                         [](const auto& tested) { return tested.param; });

// A trained draft, so that many proposals are accepted and some refused.
TEST(RecurrentPair, IdsDoNotDependOnSpeculationWidthOrThreads) {
  const test::PairPaths pair = test::pair_paths("nano-qwen3_5");
  const auto cases = test::read_json(pair.golden)["cases"];
  const std::uint32_t tokens = test::full_run() ? 200 : 96;
  const std::size_t step = test::full_run() ? 1 : cases.size() / 3;
  auto plain = must(Engine::load({.target = pair.target, .threads = 2}));
  ASSERT_NE(plain, nullptr);
  const auto generate = [&](Engine& engine, std::size_t i, std::uint32_t width) {
    GenerateRequest request;
    request.prompt_ids = cases[i]["prompt_ids"].get<std::vector<std::uint32_t>>();
    request.max_tokens = tokens;
    request.width = width;
    request.ignore_eos = true;
    return engine.generate(request).value().ids;
  };
  for (const unsigned threads : {1u, 2u}) {
    auto engine = must(Engine::load({.target = pair.target,
                                     .draft = pair.draft,
                                     .threads = threads,
                                     .prefill_chunk = threads == 1 ? 37u : 0u}));
    ASSERT_NE(engine, nullptr);
    for (std::size_t i = 0; i < cases.size(); i += step) {
      const auto want = generate(*plain, i, 0);
      EXPECT_EQ(want.size(), tokens);
      for (const std::uint32_t width : {1u, 2u, 5u, 16u, 0u}) {
        EXPECT_EQ(generate(*engine, i, width), want)
            << "case " << i << " width " << width << " threads " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace drafthouse
