// Targets whose layers differ: windows, shapes of heads, rotary settings, shared keys and values,
// experts.
// Everything is compared bit for bit.

#include <gtest/gtest.h>

#include <cmath>

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

// Three layer groups: full layers, a window of less than a page, and its keys once more for a layer
// that has none.
ModelConfig mixed_shape() {
  ModelConfig c;
  c.family = "qwen3";
  c.hidden_size = 96;
  c.layers = 5;
  c.heads = 6;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate_size = 160;
  c.vocab_size = kVocabulary;
  c.max_positions = 2048;
  c.tied_head = true;
  c.sliding_window = 40;
  c.rope.theta = 1e6;
  c.sliding_rope = RopeConfig{};
  const LayerConfig sliding{.kind = LayerKind::sliding_attention,
                            .heads = 6,
                            .kv_heads = 2,
                            .head_dim = 32,
                            .intermediate_size = 160};
  const LayerConfig full{.kind = LayerKind::full_attention,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 64,
                         .intermediate_size = 96};
  LayerConfig borrowing = sliding;
  borrowing.kv_source = 2;
  borrowing.intermediate_size = 320;
  c.layer_table = {sliding, full, sliding, full, borrowing};
  return c;
}

// Experts in some layers, as Qwen3-MoE has them.
ModelConfig experts_shape() {
  ModelConfig c = mixed_shape();
  c.family = "qwen3_moe";
  c.experts = {.count = 9, .per_row = 3, .intermediate_size = 64, .normalise = true};
  for (const std::size_t layer : {0u, 1u, 4u}) {
    c.layer_table[layer].experts = true;
    c.layer_table[layer].intermediate_size = 0;
  }
  return c;
}

// Every part that Gemma 4 has, at once.
ModelConfig gemma_shape() {
  ModelConfig c = mixed_shape();
  c.family = "gemma4";
  c.activation = Activation::gelu_tanh;
  c.attention_scale = 1.0;
  c.embedding_scale = 9.75;
  c.final_logit_softcap = 30.0;
  c.value_is_key = true;
  c.per_layer_input_size = 32;
  c.rope.scaling = RopeScaling::proportional;
  c.rope.rotated_part = 0.25;
  c.experts = {.count = 5, .per_row = 2, .intermediate_size = 96, .normalise = true};
  for (const std::size_t layer : {1u, 2u}) c.layer_table[layer].experts = true;
  return c;
}

// Biases, sinks, experts only. Its experts are stored with outputs last, so not quantised.
ModelConfig gpt_oss_shape() {
  ModelConfig c = mixed_shape();
  c.family = "gpt_oss";
  c.activation = Activation::clamped_silu;
  c.attention_bias = true;
  c.experts = {.count = 8, .per_row = 4, .intermediate_size = 96, .normalise = true};
  c.layer_table.pop_back();
  c.layers = 4;
  for (LayerConfig& layer : c.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 0;
  }
  return c;
}

std::unique_ptr<Engine> mixed_engine(EngineOptions options) {
  return must(make_synthetic_engine(
      {.name = "mixed", .target = mixed_shape(), .format = Dtype::bf16}, options));
}

TEST(Layers, GroupsAreOneForEachWindowAndShape) {
  const auto engine = mixed_engine({});
  ASSERT_NE(engine, nullptr);
  const Decoder& target = *engine->internals().target;
  ASSERT_EQ(target.groups().size(), 2u);
  EXPECT_EQ(target.groups()[0].reach, 40u);
  EXPECT_EQ(target.groups()[1].reach, 0u);
  // Two layers each: the last layer stores nothing.
  EXPECT_EQ(target.groups()[0].page_bytes, 2u * 2 * 2 * 64 * 32 * 2);
  EXPECT_EQ(target.groups()[1].page_bytes, 2u * 2 * 1 * 64 * 64 * 2);
  EXPECT_EQ(target.plans()[4].kv.layer_offset, target.plans()[2].kv.layer_offset);
}

struct Shape {
  const char* name;
  ModelConfig (*make)();
};
class EveryShape : public ::testing::TestWithParam<Shape> {};

TEST_P(EveryShape, LogitsDoNotDependOnWidthThreadsOrInstructionSet) {
  const std::vector<std::uint32_t> ids = some_ids(210, kVocabulary);
  for (const Dtype format : {Dtype::bf16, Dtype::q8_0}) {
    const ModelConfig target = GetParam().make();
    if (target.family == "gpt_oss" && format != Dtype::bf16) continue;
    for (const Isa isa : built_isas()) {
      if (!cpu_has(isa)) continue;
      SCOPED_TRACE(std::string(name_of(isa)));
      std::vector<double> want;
      for (const unsigned threads : {1u, 2u}) {
        const SyntheticPair pair{
            .name = "mixed", .target = target, .format = format, .with_draft = false};
        auto engine = must(
            make_synthetic_engine(pair, {.threads = threads, .isa = std::string(name_of(isa))}));
        ASSERT_NE(engine, nullptr);
        for (const std::uint32_t width : {1u, 3u, 16u, 100u, 512u}) {
          const Result<ScoreResult> score = engine->score({.ids = ids, .width = width});
          ASSERT_TRUE(score.ok()) << score.status().message();
          for (const double p : score.value().logprob) ASSERT_TRUE(std::isfinite(p));
          const std::vector<double>& got = score.value().logprob;
          if (want.empty()) want = got;
          EXPECT_EQ(got, want) << "width " << width << ", threads " << threads;
        }
      }
    }
  }
}

TEST_P(EveryShape, StateAndIdsAreTheSameHoweverTheyCameToBe) {
  const std::vector<std::uint32_t> prompt = some_ids(300, kVocabulary);
  State whole;
  for (const std::uint32_t chunk : {512u, 64u, 37u, 1u}) {
    auto engine = must(
        make_synthetic_engine({.name = "mixed", .target = GetParam().make(), .format = Dtype::bf16},
                              {.prefill_chunk = chunk}));
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    Sequence sequence = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
    // A page that no row to come sees is given back with the next rows.
    ASSERT_TRUE(runner.take_turn(sequence, 1, nullptr).ok());
    EXPECT_EQ(sequence.target.pages(0)[0], nullptr);
    EXPECT_NE(sequence.target.pages(1)[0], nullptr);
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

INSTANTIATE_TEST_SUITE_P(Layers, EveryShape,
                         ::testing::Values(Shape{"mixed", mixed_shape},
                                           Shape{"experts", experts_shape},
                                           Shape{"gemma4", gemma_shape},
                                           Shape{"gpt_oss", gpt_oss_shape}),
                         [](const auto& shape) { return std::string(shape.param.name); });

// What a snapshot holds of a sliding group, its pages in reach, is enough to go on from.
TEST(Layers, AnAdoptedStateNeedsThePagesInReachOnly) {
  const std::vector<std::uint32_t> prompt = some_ids(300, kVocabulary);
  auto engine = mixed_engine({});
  ASSERT_NE(engine, nullptr);
  TurnRunner& runner = *engine->internals().runner;
  Sequence first = runner.start(true).value();
  ASSERT_TRUE(runner.prefill(first, {prompt.data(), 257}, nullptr).ok());
  PrefixPages shared;
  for (const SequenceCache* cache : {&first.target, &*first.draft}) {
    for (std::uint32_t group = 0; group < cache->groups(); ++group) {
      shared.emplace_back();
      for (std::uint32_t page = 0; page < 4; ++page)
        shared.back().push_back(cache->share(group, page));
    }
  }
  // All of the prompt's pages can be shared, so that it may be left at any of them.
  for (std::uint32_t page = 0; page < 4; ++page) EXPECT_TRUE(shared[0][page]) << page;
  for (std::uint32_t page = 0; page < 3; ++page) shared[0][page].reset();
  Sequence alone = runner.start(true).value();
  ASSERT_TRUE(runner.prefill(alone, prompt, nullptr).ok());
  Sequence adopted = runner.start(true).value();
  runner.adopt(adopted, 256, shared);
  ASSERT_TRUE(runner.prefill(adopted, prompt, nullptr).ok());
  for (Sequence* each : {&alone, &adopted}) {
    while (each->ids.size() < 400) {
      ASSERT_TRUE(runner.take_turn(*each, each == &alone ? 1 : 5, nullptr).ok());
    }
    runner.truncate(*each, 400);
    ASSERT_TRUE(runner.settle(*each).ok());
  }
  EXPECT_EQ(adopted.ids, alone.ids);
  EXPECT_TRUE(state_of(runner, adopted).target == state_of(runner, alone).target);
  EXPECT_TRUE(state_of(runner, adopted).draft == state_of(runner, alone).draft);
}

}  // namespace
}  // namespace drafthouse
