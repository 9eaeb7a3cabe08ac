#include "engine/synthetic.h"

#include <gtest/gtest.h>

#include "engine/bench.h"
#include "engine/internals.h"

namespace drafthouse {
namespace {

SyntheticPair tiny(Dtype format, const char* family = "qwen3") {
  SyntheticPair pair;
  pair.name = "tiny";
  ModelConfig& config = pair.target;
  config.family = family;
  config.hidden_size = 96;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 160;
  config.vocab_size = 331;
  config.max_positions = 2048;
  config.tied_head = true;
  pair.format = format;
  return pair;
}

std::unique_ptr<Engine> make(const SyntheticPair& pair, unsigned threads) {
  EngineOptions options;
  options.threads = threads;
  Result<std::unique_ptr<Engine>> engine = make_synthetic_engine(pair, options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<std::uint32_t> generate(Engine& engine, std::uint32_t width) {
  GenerateRequest request;
  for (std::uint32_t i = 0; i < 70; ++i) request.prompt_ids.push_back(i * 37 % 331);
  request.max_tokens = 40;
  request.width = width;
  Result<GenerateResult> result = engine.generate(request);
  EXPECT_TRUE(result.ok());
  return result.ok() ? result.value().ids : std::vector<std::uint32_t>();
}

class EveryFormat : public testing::TestWithParam<Dtype> {};

TEST_P(EveryFormat, IdsDependOnNeitherWidthNorDraftNorThreads) {
  SyntheticPair pair = tiny(GetParam());
  const std::unique_ptr<Engine> drafted = make(pair, 2);
  pair.with_draft = false;
  const std::unique_ptr<Engine> plain = make(pair, 1);
  ASSERT_NE(drafted, nullptr);
  ASSERT_NE(plain, nullptr);
  const std::vector<std::uint32_t> expected = generate(*plain, 0);
  ASSERT_EQ(expected.size(), 40u);
  for (const std::uint32_t width : {1u, 2u, 5u, 16u, 0u}) {
    EXPECT_EQ(generate(*drafted, width), expected) << "width " << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat,
                         testing::Values(Dtype::bf16, Dtype::f16, Dtype::f32, Dtype::q8_0,
                                         Dtype::q4_0, Dtype::q4_1),
                         [](const auto& chosen) { return std::string(name_of(chosen.param)); });

TEST(Synthetic, LlamaHasNoQueryNormsAndBuildsToo) {
  const std::unique_ptr<Engine> engine = make(tiny(Dtype::q8_0, "llama"), 1);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(generate(*engine, 16), generate(*engine, 1));
}

TEST(Synthetic, PackedBytesAreWhatTheEngineHolds) {
  const SyntheticPair pair = tiny(Dtype::q4_1);
  const std::unique_ptr<Engine> engine = make(pair, 1);
  ASSERT_NE(engine, nullptr);
  const std::uint64_t norms = 64 << 10;
  EXPECT_GE(engine->info().weight_bytes, packed_bytes(pair));
  EXPECT_LE(engine->info().weight_bytes, packed_bytes(pair) + norms);
}

TEST(Synthetic, WeightsThatDoNotFitAreRefusedWithArithmetic) {
  SyntheticPair pair = tiny(Dtype::bf16);
  pair.name = "llama-3.1-8b bf16";
  pair.target = published_shape("llama-3.1-8b").value();
  pair.memory_limit = 4'000'000'000;
  const Result<std::unique_ptr<Engine>> engine = make_synthetic_engine(pair, {});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::no_memory);
  EXPECT_NE(engine.status().message().find("16.06 GB (target) + "), std::string::npos)
      << engine.status().message();
  EXPECT_NE(engine.status().message().find("4.00 GB of memory is free"), std::string::npos);
}

// Parameter counts as the models' pages give them, embeddings included once.
TEST(Synthetic, PublishedShapesHaveTheirPublishedSizes) {
  const std::pair<const char*, double> sizes[] = {
      {"qwen3-0.6b", 0.596},     {"qwen3-1.7b", 1.72},   {"qwen3-4b", 4.02},
      {"qwen3-8b", 8.19},        {"llama-3.1-8b", 8.03}, {"qwen2.5-0.5b", 0.494},
      {"qwen3-30b-a3b", 30.5},   {"qwen3.5-4b", 4.21},   {"qwen3.5-27b", 26.9},
      {"qwen3.5-35b-a3b", 34.7}, {"gemma-4-31b", 30.7},  {"gemma-4-26b-a4b", 25.2},
      {"smollm2-135m", 0.1345}};
  ASSERT_EQ(std::size(sizes), published_shapes().size());
  for (const auto& [name, billions] : sizes) {
    SyntheticPair pair;
    pair.target = published_shape(name).value();
    pair.format = Dtype::bf16;
    pair.with_draft = false;
    EXPECT_NEAR(static_cast<double>(packed_bytes(pair)) / 2e9, billions, 0.01 * billions) << name;
  }
  EXPECT_EQ(published_shape("qwen3-1.7B").status().code(), Code::not_found);
}

TEST(Synthetic, DraftTapsAreDistinctLayersOfTheTarget) {
  ModelConfig target = tiny(Dtype::q8_0).target;
  for (const std::uint32_t layers : {1u, 2u, 5u, 7u, 8u, 28u, 36u}) {
    target.layers = layers;
    const std::vector<std::uint32_t> taps = draft_for(target).target_layer_ids;
    ASSERT_EQ(taps.size(), std::min(layers, 5u));
    for (std::size_t i = 1; i < taps.size(); ++i) EXPECT_LT(taps[i - 1], taps[i]) << layers;
    EXPECT_LT(taps.back(), layers);
  }
}

BenchOptions quick() {
  BenchOptions options;
  options.contexts = {130, 0};
  options.seconds_per_context = 0;
  options.rounds_max = 3;
  options.prefill_tokens = 32;
  options.profile = true;
  return options;
}

TEST(Bench, FillsEveryFieldAndLeavesTheEngineUsable) {
  const std::unique_ptr<Engine> engine = make(tiny(Dtype::q8_0), 2);
  ASSERT_NE(engine, nullptr);
  const std::vector<std::uint32_t> before = generate(*engine, 16);
  const Result<BenchReport> result = run_bench(engine->internals(), quick());
  ASSERT_TRUE(result.ok()) << result.status().message();
  const BenchReport& report = result.value();
  EXPECT_GT(report.bandwidth_before_gbps, 0);
  EXPECT_GT(report.bandwidth_after_gbps, 0);
  EXPECT_GT(report.peak_float_gops, 0);
  EXPECT_GT(report.peak_int8_gops, 0);
  EXPECT_GT(report.peak_float_during_gops, 0);
  EXPECT_GT(report.peak_int8_during_gops, 0);
  ASSERT_EQ(report.contexts.size(), 2u);
  EXPECT_EQ(report.contexts[0].context, 0u);
  EXPECT_EQ(report.contexts[1].context, 130u);
  for (const BenchContext& context : report.contexts) {
    EXPECT_EQ(context.rounds, 3u);
    ASSERT_EQ(context.widths.size(), 6u);
    EXPECT_EQ(context.widths.front().ratio, 1.0);
    for (const BenchWidth& width : context.widths) {
      EXPECT_GT(width.ms, 0);
      EXPECT_GT(width.gops, 0);
      EXPECT_GT(width.bandwidth_share, 0);
      EXPECT_GE(width.roofline_share, width.bandwidth_share);
    }
    EXPECT_EQ(context.turn_width, 16u);
    for (const double value :
         {context.draft_ms, context.turn_ms, context.turn_ratio, context.turn_over_parts,
          context.prefill_tok_s, context.prefill_peak_share, context.step_ms}) {
      EXPECT_GT(value, 0);
    }
    EXPECT_GE(context.outside_kernels_share, 0);
    EXPECT_LT(context.outside_kernels_share, 1);
  }
  EXPECT_EQ(report.profiles.size(), 14u);
  EXPECT_EQ(generate(*engine, 16), before);
}

TEST(Bench, CountsTheExpertsThatAPassReads) {
  SyntheticPair pair = tiny(Dtype::q4_0, "qwen3_moe");
  pair.draft_format = Dtype::q8_0;
  ModelConfig& config = pair.target;
  config.experts = {.count = 64, .per_row = 4, .intermediate_size = 32, .normalise = true};
  config.layer_table.assign(config.layers, config.layer(0));
  for (LayerConfig& layer : config.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 0;
  }
  const std::unique_ptr<Engine> engine = make(pair, 2);
  ASSERT_NE(engine, nullptr);
  const Result<BenchReport> result = run_bench(engine->internals(), quick());
  ASSERT_TRUE(result.ok()) << result.status().message();
  for (const BenchContext& context : result.value().contexts) {
    EXPECT_EQ(context.widths.front().experts, 4.0);
    for (std::size_t i = 1; i < context.widths.size(); ++i) {
      EXPECT_GT(context.widths[i].experts, context.widths[i - 1].experts);
      EXPECT_LE(context.widths[i].experts, 4.0 * context.widths[i].width);
    }
  }
}

TEST(Synthetic, HeadsThatNoKernelTakesAreRefused) {
  for (const std::uint32_t head_dim : {8u, 24u, 514u, 528u, 1040u}) {
    SyntheticPair pair = tiny(Dtype::bf16);
    pair.with_draft = false;
    pair.target.head_dim = head_dim;
    const auto engine = make_synthetic_engine(pair, {.threads = 1});
    ASSERT_FALSE(engine.ok()) << head_dim;
    EXPECT_EQ(engine.status().code(), Code::unsupported);
    EXPECT_NE(engine.status().message().find(std::to_string(head_dim)), std::string::npos);
  }
}

TEST(Bench, WithoutADraftThereAreNoTurns) {
  SyntheticPair pair = tiny(Dtype::bf16);
  pair.with_draft = false;
  const std::unique_ptr<Engine> engine = make(pair, 1);
  ASSERT_NE(engine, nullptr);
  const Result<BenchReport> result = run_bench(engine->internals(), quick());
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().contexts[0].turn_width, 0u);
  EXPECT_EQ(result.value().contexts[0].turn_ms, 0);
}

TEST(Bench, EndsWhenCancelledAndRefusesContextsThatDoNotFit) {
  const std::unique_ptr<Engine> engine = make(tiny(Dtype::q8_0), 1);
  ASSERT_NE(engine, nullptr);
  BenchOptions options = quick();
  options.contexts = {2000};
  EXPECT_EQ(run_bench(engine->internals(), options).status().code(), Code::context_overflow);
  const std::atomic<bool> cancelled{true};
  options.contexts = {0};
  options.cancel = &cancelled;
  EXPECT_EQ(run_bench(engine->internals(), options).status().code(), Code::cancelled);
}

}  // namespace
}  // namespace drafthouse
