// Every family in every weight format: ids do not depend on the draft, the width, the threads or
// how the prompt is cut. Small models with random weights; a format's kernels see whole groups and
// rows of codes. Each format with one family here, with all of them in the long form.

#include <gtest/gtest.h>

#include "engine/synthetic.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kVocabulary = 500;
constexpr std::uint32_t kInputs = 256;  // of every matrix: a whole block of each format

ModelConfig base(const char* family) {
  ModelConfig c;
  c.family = family;
  c.hidden_size = kInputs;
  c.layers = 4;
  c.heads = 8;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate_size = kInputs;
  c.vocab_size = kVocabulary;
  c.max_positions = 2048;
  c.tied_head = true;
  return c;
}

// Every second layer sees the last 40 positions only.
ModelConfig sliding(const char* family) {
  ModelConfig c = base(family);
  c.sliding_window = 40;
  c.sliding_rope = RopeConfig{};
  c.layer_table.assign(c.layers, c.layer(0));
  for (std::size_t i = 0; i < c.layers; i += 2)
    c.layer_table[i].kind = LayerKind::sliding_attention;
  return c;
}

ModelConfig with_experts(ModelConfig c, std::uint32_t dense) {
  c.experts = {.count = 9, .per_row = 3, .intermediate_size = kInputs, .normalise = true};
  if (c.layer_table.empty()) c.layer_table.assign(c.layers, c.layer(0));
  for (LayerConfig& layer : c.layer_table) {
    layer.experts = true;
    layer.intermediate_size = dense;
  }
  return c;
}

ModelConfig qwen2() {
  ModelConfig c = base("qwen2");
  c.attention_bias = true;
  return c;
}

ModelConfig gemma4() {
  ModelConfig c = sliding("gemma4");
  c.activation = Activation::gelu_tanh;
  c.attention_scale = 1.0;
  c.embedding_scale = 16.0;
  c.final_logit_softcap = 30.0;
  c.value_is_key = true;
  return c;
}

ModelConfig gpt_oss() {
  ModelConfig c = with_experts(sliding("gpt_oss"), 0);
  c.activation = Activation::clamped_silu;
  c.attention_bias = true;
  return c;
}

ModelConfig delta_rules(const char* family) {
  ModelConfig c = base(family);
  c.recurrent = {.kernel = 4, .key_heads = 4, .value_heads = 8, .key_dim = 32, .value_dim = 32};
  c.gain_from_one = true;
  c.attention_gate = true;
  c.rope.rotary_dim = 16;
  c.layer_table.assign(c.layers, c.layer(0));
  for (std::size_t i = 0; i + 1 < c.layers; ++i) c.layer_table[i].kind = LayerKind::delta_rule;
  return c;
}

ModelConfig lfm2() {
  ModelConfig c = base("lfm2");
  c.recurrent = {.kernel = 3};
  c.layer_table.assign(c.layers, c.layer(0));
  c.layer_table[0].kind = c.layer_table[2].kind = LayerKind::convolution;
  return c;
}

std::vector<ModelConfig> families() {
  return {base("llama"),
          base("qwen3"),
          qwen2(),
          with_experts(base("qwen3_moe"), 0),
          gemma4(),
          with_experts(gemma4(), kInputs),
          gpt_oss(),
          with_experts(delta_rules("qwen3_next"), kInputs),
          delta_rules("qwen3_5"),
          with_experts(delta_rules("qwen3_5"), kInputs),
          lfm2()};
}

std::vector<RowFormat> formats() {
  std::vector<RowFormat> all;
  for (const Dtype dtype :
       {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::q4_0, Dtype::q4_1, Dtype::q5_0,
        Dtype::q5_1, Dtype::q2_k, Dtype::q3_k, Dtype::q4_k, Dtype::q5_k, Dtype::q6_k, Dtype::iq4_nl,
        Dtype::iq4_xs, Dtype::mxfp4, Dtype::mxfp4_rows}) {
    all.emplace_back(dtype);
  }
  for (const std::uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u}) {
    for (const std::uint32_t group : {32u, 64u, 128u}) {
      all.emplace_back(Dtype::affine, bits, group, Dtype::bf16);
    }
  }
  return all;
}

std::unique_ptr<Engine> make(const SyntheticPair& pair, unsigned threads, std::uint32_t chunk) {
  auto engine = make_synthetic_engine(pair, {.threads = threads, .prefill_chunk = chunk});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<std::uint32_t> generate(Engine& engine, std::uint32_t width) {
  GenerateRequest request;
  for (std::uint32_t i = 0; i < 90; ++i) request.prompt_ids.push_back(i * 37 % kVocabulary);
  request.max_tokens = 48;
  request.width = width;
  request.ignore_eos = true;
  const Result<GenerateResult> result = engine.generate(request);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.status().message());
  return result.ok() ? result.value().ids : std::vector<std::uint32_t>();
}

// gpt-oss' own files store experts with outputs last, so as plain numbers only.
bool can_have(const ModelConfig& family, const RowFormat& format) {
  const bool numbers =
      format.dtype == Dtype::f32 || format.dtype == Dtype::f16 || format.dtype == Dtype::bf16;
  return family.family != "gpt_oss" || numbers;
}

void check(const ModelConfig& family, RowFormat format) {
  SCOPED_TRACE(family.family + " " + name_of(format));
  SyntheticPair pair;
  pair.name = family.family;
  pair.target = family;
  pair.format = format;
  const auto drafted = make(pair, 2, 0);
  const auto cut = make(pair, 1, 37);
  pair.with_draft = false;
  const auto plain = make(pair, 1, 64);
  if (drafted == nullptr || cut == nullptr || plain == nullptr) return;
  const std::vector<std::uint32_t> expected = generate(*plain, 0);
  EXPECT_EQ(expected.size(), 48u);
  for (const std::uint32_t width : {1u, 2u, 5u, 16u, 0u}) {
    EXPECT_EQ(generate(*drafted, width), expected) << "width " << width;
  }
  EXPECT_EQ(generate(*cut, 16), expected) << "prompt in chunks of 37, one thread";
}

TEST(Families, IdsAreTheTargetsInEveryFormat) {
  const std::vector<ModelConfig> all = families();
  const std::vector<RowFormat> kinds = formats();
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    for (std::size_t f = 0; f < all.size(); ++f) {
      // The first formats are plain numbers, in the families from the last on.
      const bool chosen = f == (k + all.size() - 5) % all.size();
      if ((test::full_run() || chosen) && can_have(all[f], kinds[k])) check(all[f], kinds[k]);
    }
  }
}

}  // namespace
}  // namespace drafthouse
