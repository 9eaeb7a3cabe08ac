#include "formats/hf_config.h"

#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::kTinyConfig;
using testing::kTinyDraftConfig;
using testing::replaced;

HfConfigFiles files_of(std::string_view config, std::string_view generation = "{}") {
  HfConfigFiles files;
  files.config_path = "config.json";
  files.config = JsonDocument::parse(config, files.config_path).value();
  files.generation_path = "generation_config.json";
  files.generation = JsonDocument::parse(generation, files.generation_path).value();
  return files;
}

Result<ModelConfig> model(std::string_view config, std::string_view generation = "{}") {
  return model_config_from_hf(files_of(config, generation));
}

Result<DraftConfig> draft(std::string_view config) {
  return draft_config_from_hf(files_of(config), {"fc.weight", "norm.weight"});
}

// The configuration without its closing brace, and with these members.
std::string with(std::string_view config, std::string_view members) {
  std::string text(config);
  text.erase(text.rfind('}'));
  return text + ", " + std::string(members) + "}";
}

TEST(HfConfig, ReadsAFlatFile) {
  auto read = model(kTinyConfig);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.family, "qwen3");
  EXPECT_EQ(config.hidden_size, 8u);
  EXPECT_EQ(config.head_dim, 4u);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_TRUE(config.tied_head);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.interleaved_rope_rows);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.eos_ids, (std::vector<std::uint32_t>{2}));
}

TEST(HfConfig, ReadsANestedFileAndFallsBackToTheTop) {
  const std::string inner = replaced(kTinyConfig, R"("tie_word_embeddings": true, )", "");
  auto read = model(R"({"model_type": "wrapper", "tie_word_embeddings": true, "eos_token_id": [4],)"
                    R"("text_config": )" +
                    inner + "}");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().family, "qwen3");
  EXPECT_TRUE(read.value().tied_head);
  EXPECT_EQ(read.value().eos_ids, (std::vector<std::uint32_t>{2, 4}));
}

TEST(HfConfig, HeadDimDefaults) {
  const std::string without = replaced(kTinyConfig, R"("head_dim": 4,)", "");
  EXPECT_EQ(model(without).value().head_dim, 128u);
  EXPECT_EQ(model(replaced(without, R"("qwen3")", R"("llama")")).value().head_dim, 4u);
}

TEST(HfConfig, StopIdsAreTheUnionOfAllSources) {
  HfConfigFiles files = files_of(kTinyConfig, R"({"eos_token_id": [5, 1, 5]})");
  files.text_stops = {3, 900};
  EXPECT_EQ(model_config_from_hf(files).value().eos_ids, (std::vector<std::uint32_t>{1, 2, 3, 5}));
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})"}) {
    EXPECT_EQ(model(kTinyConfig, none).value().eos_ids, (std::vector<std::uint32_t>{2})) << none;
  }
}

TEST(HfConfig, StopIdsThatNoRowCanGiveAreRefusedWithFileFieldAndValue) {
  for (const char* value : {"6", "-1", "1.0", "\"x\"", "true", "1e30", "18446744073709551616",
                            "[2, 600]", "[-100]", "[null]", "[[1]]", "{\"id\": 1}"}) {
    const std::string field = fmt::format(R"({{"eos_token_id": {}}})", value);
    const Status status = model(kTinyConfig, field).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << value;
    const std::string config =
        replaced(kTinyConfig, R"("eos_token_id": 2)", fmt::format(R"("eos_token_id": {})", value));
    EXPECT_EQ(model(config).status().code(), Code::invalid_argument) << value;
  }
  const auto message = [](const char* generation) {
    return model(kTinyConfig, generation).status().message();
  };
  EXPECT_EQ(message(R"({"eos_token_id": [2, 600]})"),
            "generation_config.json: eos_token_id holds 600, which is no token id: the embedding "
            "has 6 rows");
  EXPECT_EQ(message(R"({"eos_token_id": -1})"),
            "generation_config.json: eos_token_id is -1, which is no token id: the embedding has 6 "
            "rows");
  std::string many = "[0";
  for (int i = 0; i < 256; ++i) many += ", 1";
  EXPECT_FALSE(model(kTinyConfig, R"({"eos_token_id": )" + many + "]}").ok());
}

TEST(HfConfig, RopeOldAndNewSpelling) {
  constexpr std::string_view kNew =
      R"("rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"})";
  const auto rope = [&](std::string_view text) {
    return model(replaced(kTinyConfig, kNew, text)).value().rope;
  };
  const RopeConfig old =
      rope(R"("rope_theta": 5.5, "rope_scaling": {"type": "linear", "factor": 2})");
  EXPECT_EQ(old.theta, 5.5);
  EXPECT_EQ(old.scaling, RopeScaling::linear);
  EXPECT_EQ(old.factor, 2.0);
  const RopeConfig llama = rope(
      R"("rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8,
         "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(llama.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama.original_max_positions, 8192.0);
  const RopeConfig yarn =
      rope(R"("rope_parameters": {"rope_theta": 7, "rope_type": "yarn", "factor": 4})");
  EXPECT_EQ(yarn.scaling, RopeScaling::yarn);
  EXPECT_EQ(yarn.theta, 7.0);
  EXPECT_EQ(yarn.original_max_positions, 64.0);
  EXPECT_EQ(yarn.attention_factor, std::nullopt);
  EXPECT_EQ(rope(R"("rope_scaling": null)").theta, 10000.0);
  EXPECT_EQ(rope(R"("rope_parameters": {"rope_theta": 7}, "rope_scaling": null)").theta, 7.0);
}

struct Refused {
  std::string config;
  Code code;
  std::string named;
};

template <class Read>
void expect_refused(const std::vector<Refused>& all, Read read) {
  for (const Refused& one : all) {
    auto result = read(one.config);
    ASSERT_FALSE(result.ok()) << one.named << "\n" << one.config;
    EXPECT_EQ(result.status().code(), one.code) << result.status().message();
    EXPECT_NE(result.status().message().find(one.named), std::string::npos)
        << result.status().message();
    EXPECT_EQ(result.status().message().rfind("config.json: ", 0), 0u) << result.status().message();
  }
}

TEST(HfConfig, RefusesByField) {
  const auto changed = [](std::string_view from, std::string_view to) {
    return replaced(kTinyConfig, from, to);
  };
  const Code invalid = Code::invalid_argument;
  const auto rope = [&](std::string_view type) { return changed(R"("default")", type); };
  expect_refused(
      {
          {changed(R"("qwen3")", R"("gpt_neox")"), Code::unsupported, "model_type \"gpt_neox\""},
          {changed(R"("qwen3")", R"("qwen3_moe")"), invalid, "num_local_experts is missing"},
          {changed(R"("qwen3")", R"("gpt_oss")"), invalid, "num_local_experts is missing"},
          {changed(R"("qwen3")", R"("gemma4_text")"), Code::unsupported, "hidden_activation"},
          {changed(R"("model_type": "qwen3",)", ""), Code::unsupported, "model_type"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": 0)"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": -8)"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": 8.5)"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": "8")"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": 65537)"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8)", R"("hidden_size": 1e30)"), invalid, "hidden_size"},
          {changed(R"("hidden_size": 8,)", ""), invalid, "hidden_size is missing"},
          {changed(R"("num_hidden_layers": 1)", R"("num_hidden_layers": 1025)"), invalid,
           "num_hidden_layers"},
          {changed(R"("vocab_size": 6)", R"("vocab_size": 16777217)"), invalid, "vocab_size"},
          {changed(R"("num_key_value_heads": 1)", R"("num_key_value_heads": 3)"), invalid,
           "num_key_value_heads"},
          {changed(R"("head_dim": 4)", R"("head_dim": 5)"), invalid, "head_dim"},
          {changed(R"("head_dim": 4)", R"("head_dim": 514)"), invalid, "head_dim"},
          {changed("1e-6", "0"), invalid, "rms_norm_eps"},
          {changed(R"("silu")", R"("gelu")"), Code::unsupported, "hidden_act"},
          {with(kTinyConfig, R"("use_sliding_window": true)"), Code::unsupported,
           "use_sliding_window"},
          {with(kTinyConfig, R"("layer_types": ["sliding_attention"])"), Code::unsupported,
           "layer_types"},
          {with(kTinyConfig, R"("quantization_config": {"quant_method": "awq"})"),
           Code::unsupported, "awq"},
          {with(kTinyConfig, R"("partial_rotary_factor": 0.5)"), Code::unsupported,
           "partial_rotary_factor"},
          {rope(R"("longrope")"), Code::unsupported, "rope_type"},
          {rope(R"("llama3", "factor": 8)"), invalid, "low_freq_factor"},
          {rope(R"("yarn", "factor": 4, "mscale": 1)"), Code::unsupported, "mscale"},
          {rope(R"("linear", "factor": -1)"), invalid, "factor"},
          {rope("7"), invalid, "rope_type"},
          {rope(R"("default", "full_attention": {})"), Code::unsupported, "per layer type"},
          {changed(R"("eos_token_id": 2)", R"("eos_token_id": ["a"])"), invalid, "eos_token_id"},
      },
      [](const std::string& config) { return model(config); });
}

std::string qwen3_5(std::string_view more, std::string_view type = "qwen3_5_text") {
  return R"({"model_type": "qwen3_5", "tie_word_embeddings": true, "text_config": {"model_type": ")" +
         std::string(type) + R"(", "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 8,
    "vocab_size": 6, "max_position_embeddings": 64, "hidden_act": "silu",
    "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 16, "linear_value_head_dim": 32,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
                        "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0]})" +
         std::string(more) + "}}";
}

TEST(HfConfig, Qwen35LayersAreRecurrentOrAttend) {
  auto read = model(qwen3_5(R"(, "mtp_num_hidden_layers": 1)"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.family, "qwen3_5");
  EXPECT_TRUE(config.tied_head);
  EXPECT_TRUE(config.gain_from_one);
  EXPECT_TRUE(config.attention_gate);
  EXPECT_EQ(config.rope.rotary_dim, 4u);
  EXPECT_EQ(config.recurrent.kernel, 4u);
  EXPECT_EQ(config.recurrent.value_heads, 4u);
  EXPECT_EQ(config.recurrent.value_dim, 32u);
  EXPECT_EQ(config.experts.count, 0u);
  ASSERT_EQ(config.layer_table.size(), 4u);
  EXPECT_EQ(config.layer_table[2].kind, LayerKind::delta_rule);
  EXPECT_EQ(config.layer_table[3].kind, LayerKind::full_attention) << "every fourth, when not said";

  read = model(qwen3_5(R"(, "num_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
      "layer_types": ["full_attention", "linear_attention", "linear_attention",
                      "full_attention"])",
                       "qwen3_5_moe_text"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().experts.count, 8u);
  EXPECT_TRUE(read.value().experts.normalise);
  EXPECT_TRUE(read.value().layer_table[1].experts);
  EXPECT_EQ(read.value().layer_table[1].intermediate_size, 40u) << "the shared expert's";
  EXPECT_EQ(read.value().layer_table[0].kind, LayerKind::full_attention);

  const auto read_changed = [](const std::string& config_text) { return model(config_text); };
  expect_refused(
      {{qwen3_5(R"(, "output_gate_type": "sigmoid")"), Code::unsupported, "output_gate_type"},
       {qwen3_5(R"(, "layer_types": ["linear_attention"])"), Code::invalid_argument, "layer_types"},
       {qwen3_5(R"(, "partial_rotary_factor": 1)", "qwen3_6_text"), Code::unsupported,
        "qwen3_6_text"}},
      read_changed);
}

TEST(HfConfig, Lfm2LayersAreConvolutionsOrAttend) {
  const auto lfm2 = [](std::string_view more) {
    return R"({"model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 6, "norm_eps": 1e-5,
      "max_position_embeddings": 64, "conv_L_cache": 3, "rope_theta": 1000000.0)" +
           std::string(more) + "}";
  };
  auto read = model(lfm2(R"(, "intermediate_size": 96,
      "layer_types": ["conv", "full_attention", "conv"])"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().recurrent.kernel, 3u);
  EXPECT_EQ(read.value().rms_eps, 1e-5);
  EXPECT_EQ(read.value().intermediate_size, 96u);
  EXPECT_TRUE(read.value().tied_head);
  EXPECT_EQ(read.value().layer_table[0].kind, LayerKind::convolution);
  EXPECT_EQ(read.value().layer_table[1].kind, LayerKind::full_attention);
  EXPECT_EQ(read.value().layer_table[1].head_dim, 16u);
  // Older files.
  read = model(lfm2(R"(, "block_ff_dim": 1000, "block_auto_adjust_ff_dim": true,
      "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "full_attn_idxs": [2])"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().layer_table[2].intermediate_size, 768u);
  EXPECT_EQ(read.value().layer_table[2].kind, LayerKind::full_attention);
  EXPECT_FALSE(model(lfm2(R"(, "conv_bias": true)")).ok());
}

std::string gemma(std::string_view more) {
  return R"({"model_type": "gemma4_text", "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 8,
    "vocab_size": 6, "max_position_embeddings": 64, "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 8, "rope_parameters": {
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                         "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                    "full_attention"])" +
         std::string(more) + "}";
}

TEST(HfConfig, Gemma4LayersDiffer) {
  auto read = model(gemma(R"(, "global_head_dim": 32, "num_global_key_value_heads": 1,
      "attention_k_eq_v": true, "final_logit_softcapping": 30)"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.family, "gemma4");
  EXPECT_EQ(config.embedding_scale, 4.0);
  EXPECT_EQ(config.attention_scale, 1.0);
  EXPECT_EQ(config.final_logit_softcap, 30.0);
  EXPECT_EQ(config.rope.scaling, RopeScaling::proportional);
  EXPECT_EQ(config.rope.rotated_part, 0.25);
  ASSERT_TRUE(config.sliding_rope.has_value());
  EXPECT_EQ(config.sliding_rope->theta, 10000.0);
  EXPECT_EQ(config.layer(0).kind, LayerKind::sliding_attention);
  EXPECT_EQ(config.layer(0).head_dim, 16u);
  EXPECT_EQ(config.layer(0).kv_heads, 2u);
  EXPECT_EQ(config.layer(1).kind, LayerKind::full_attention);
  EXPECT_EQ(config.layer(1).head_dim, 32u);
  EXPECT_EQ(config.layer(1).kv_heads, 1u);

  auto shared = model(gemma(R"(, "num_kv_shared_layers": 2, "use_double_wide_mlp": true,
      "per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 32}})"));
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared.value().layer(1).kv_source, std::nullopt);
  EXPECT_EQ(shared.value().layer(2).kv_source, 0u);
  EXPECT_EQ(shared.value().layer(3).kv_source, 1u);
  EXPECT_EQ(shared.value().layer(3).head_dim, 32u);
  EXPECT_EQ(shared.value().layer(3).intermediate_size, 16u);
}

TEST(HfConfig, Gemma4RefusesByField) {
  const Code invalid = Code::invalid_argument;
  expect_refused(
      {
          {R"(, "num_kv_shared_layers": 4)", invalid, "num_kv_shared_layers"},
          {R"(, "num_kv_shared_layers": 3)", invalid, "num_kv_shared_layers"},
          {R"(, "enable_moe_block": true)", invalid, "num_experts is missing"},
          {R"(, "enable_moe_block": true, "num_experts": 2, "top_k_experts": 3,
              "moe_intermediate_size": 8)",
           invalid, "top_k_experts"},
          {R"(, "use_bidirectional_attention": "all")", Code::unsupported,
           "use_bidirectional_attention"},
          {R"(, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 5)",
           Code::unsupported, "vocab_size_per_layer_input"},
          {R"(, "per_layer_config": {"0": {"num_key_value_heads": 3}})", invalid,
           "num_key_value_heads"},
      },
      [](const std::string& more) { return model(gemma(more)); });
}

TEST(HfConfig, ExpertsOfQwen3) {
  const std::string moe =
      with(replaced(replaced(kTinyConfig, R"("qwen3")", R"("qwen3_moe")"),
                    R"("num_hidden_layers": 1)", R"("num_hidden_layers": 4)"),
           R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 4,
         "norm_topk_prob": true, "decoder_sparse_step": 2, "mlp_only_layers": [1])");
  auto read = model(moe);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.experts.count, 8u);
  EXPECT_EQ(config.experts.per_row, 2u);
  EXPECT_TRUE(config.experts.normalise);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(config.layer(i).experts, i == 3) << i;
    EXPECT_EQ(config.layer(i).intermediate_size == 0, i == 3) << i;
  }
}

TEST(HfDraftConfig, ReadsAZlabFile) {
  auto read = draft(kTinyDraftConfig);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const DraftConfig& config = read.value();
  EXPECT_EQ(config.architecture, "DFlashDraftModel");
  EXPECT_EQ(config.block_size, 8u);
  EXPECT_EQ(config.mask_id, 5u);
  EXPECT_EQ(config.target_layer_ids, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(config.num_target_layers, 6u);
  EXPECT_EQ(config.sliding_window, 32u);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.is_causal, std::nullopt);
  EXPECT_TRUE(config.causal_in_block(0));
  EXPECT_FALSE(config.causal_in_block(1));
  EXPECT_EQ(config.input_embedding_scale, std::nullopt);
}

TEST(HfDraftConfig, NestedKeysWinAndDefaultsHold) {
  const std::string nested = replaced(
      kTinyDraftConfig, R"("mask_token_id": 5)",
      R"("mask_token_id": 5, "block_size": 4, "input_embedding_scale": 8, "output_multiplier": 0.5,
         "final_logit_softcapping": 20)");
  auto read = draft(nested);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().block_size, 4u);
  EXPECT_EQ(read.value().input_embedding_scale, 8.0);
  EXPECT_EQ(read.value().output_multiplier, 0.5);
  EXPECT_EQ(read.value().final_logit_softcapping, 20.0);
  EXPECT_EQ(draft(replaced(kTinyDraftConfig, R"("block_size": 8,)", "")).value().block_size, 16u);

  const std::string flat = replaced(
      kTinyDraftConfig, R"("dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3]})",
      R"("mask_token_id": 4, "target_layer_ids": [0], "is_causal": false)");
  EXPECT_EQ(draft(flat).value().mask_id, 4u);
  EXPECT_FALSE(draft(flat).value().causal_in_block(0));
}

TEST(HfDraftConfig, LayerTypesWithoutTheList) {
  const std::string none =
      replaced(kTinyDraftConfig, R"("layer_types": ["sliding_attention", "full_attention"],)", "");
  auto read = draft(with(none, R"("max_window_layers": 1)"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().layer_types[0], LayerAttention::full);
  EXPECT_EQ(read.value().layer_types[1], LayerAttention::sliding);
  const std::string off =
      replaced(none, R"("use_sliding_window": true)", R"("use_sliding_window": false)");
  EXPECT_EQ(draft(off).value().sliding_window, 0u);
}

TEST(HfDraftConfig, RefusesByField) {
  const Code invalid = Code::invalid_argument;
  const auto taps = [](std::string_view list) {
    return replaced(kTinyDraftConfig, "[1, 3]", list);
  };
  const auto changed = [](std::string_view from, std::string_view to) {
    return replaced(kTinyDraftConfig, from, to);
  };
  const auto more = [](std::string_view members) { return with(kTinyDraftConfig, members); };
  expect_refused(
      {
          {changed(R"(, "target_layer_ids": [1, 3])", ""), invalid, "target_layer_ids is missing"},
          {changed(R"("mask_token_id": 5, )", ""), invalid, "mask_token_id is missing"},
          {changed(R"("mask_token_id": 5)", R"("mask_token_id": 6)"), invalid, "mask_token_id"},
          {taps("[3, 1]"), invalid, "target_layer_ids"},
          {taps("[1, 1]"), invalid, "target_layer_ids"},
          {taps("[]"), invalid, "target_layer_ids"},
          {taps("[1, 6]"), invalid, "target_layer_ids"},
          {taps("[-1, 3]"), invalid, "target_layer_ids"},
          {taps("[1.5]"), invalid, "target_layer_ids"},
          {taps("\"1,3\""), invalid, "target_layer_ids"},
          {changed(R"("block_size": 8)", R"("block_size": 1)"), invalid, "block_size"},
          {changed(R"(, "full_attention"])", "]"), invalid, "layer_types"},
          {changed(R"("full_attention"])", R"("linear_attention"])"), Code::unsupported,
           "layer_types"},
          {changed(R"("sliding_window": 32)", R"("sliding_window": null)"), invalid,
           "sliding_window"},
          {changed(R"("use_sliding_window": true)", R"("use_sliding_window": false)"), invalid,
           "use_sliding_window"},
          {changed("DFlashDraftModel", "DFlash2DraftModel"), invalid, "conv_kernel_size"},
          {changed("DFlashDraftModel", "Qwen3DSparkModel"), Code::unsupported, "Qwen3DSparkModel"},
          {more(R"("speculators_model_type": "dflash")"), invalid, "transformer_layer_config"},
          {more(R"("speculators_model_type": "eagle3")"), Code::unsupported,
           "speculators_model_type"},
          {more(R"("draft_vocab_size": 4)"), Code::mismatch, "draft_vocab_size"},
          {more(R"("target_hidden_size": 16)"), Code::mismatch, "target_hidden_size"},
          {more(R"("markov_rank": 0)"), Code::unsupported, "markov_rank"},
          {more(R"("sample_from_anchor": true)"), Code::unsupported, "sample_from_anchor"},
          {more(R"("selector_rank": 8)"), Code::mismatch, "selector_rank"},
          {more(R"("is_causal": true, "causal": false)"), Code::mismatch, "causal"},
          {more(R"("is_causal": 1)"), invalid, "is_causal"},
          {more(R"("hidden_act": "gelu")"), Code::unsupported, "hidden_act"},
      },
      [](const std::string& config) { return draft(config); });
}

TEST(HfDraftConfig, OtherKindsAreKnownByTheirTensors) {
  const Code mismatch = Code::mismatch;
  for (const auto& [tensor, code] : std::initializer_list<std::pair<const char*, Code>>{
           {"candidate_selector.hidden_projection.weight", mismatch},
           {"layers.0.attention_conv.base_kernel", mismatch},
           {"layers.0.mlp_conv.kernel_projection.weight", mismatch},
           {"markov_head.markov_w1.weight", Code::unsupported},
           {"d2t", mismatch}}) {
    auto read = draft_config_from_hf(files_of(kTinyDraftConfig), {"fc.weight", tensor});
    ASSERT_FALSE(read.ok()) << tensor;
    EXPECT_EQ(read.status().code(), code);
    EXPECT_NE(read.status().message().find(tensor), std::string::npos) << read.status().message();
  }
}

TEST(HfDraftConfig, ReadsADraft2) {
  const std::string config = replaced(
      replaced(kTinyDraftConfig, "DFlashDraftModel", "DFlash2DraftModel"), R"("mask_token_id": 5)",
      R"("mask_token_id": 5, "conv_kernel_size": 2, "conv_group_size": 4,
         "selector_rank": 3, "selector_top_k": 2)");
  const std::vector<std::string_view> tensors = {"fc.weight", "layers.0.attention_conv.base_kernel",
                                                 "candidate_selector.hidden_projection.weight"};
  auto read = draft_config_from_hf(files_of(config), tensors);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().dflash2.conv_kernel, 2u);
  EXPECT_EQ(read.value().dflash2.conv_group, 4u);
  EXPECT_EQ(read.value().dflash2.selector_rank, 3u);
  EXPECT_EQ(read.value().dflash2.selector_top_k, 2u);
  EXPECT_EQ(draft(config).status().code(), Code::mismatch) << "its tensors are missing";
  EXPECT_EQ(
      draft_config_from_hf(
          files_of(replaced(config, R"("conv_group_size": 4)", R"("conv_group_size": 3)")), tensors)
          .status()
          .code(),
      Code::invalid_argument);
}

TEST(HfDraftConfig, ReadsTheSpeculatorsLayout) {
  constexpr std::string_view kSpeculators = R"({
    "architectures": ["DFlashSpeculator"], "speculators_model_type": "dflash",
    "aux_hidden_state_layer_ids": [2, 4], "draft_vocab_size": 4, "mask_token_id": 5,
    "target_hidden_size": 8, "sliding_window_non_causal": false,
    "transformer_layer_config": {
      "model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12, "vocab_size": 6,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
      "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32}})";
  const std::vector<std::string_view> tensors = {"fc.weight", "lm_head.weight", "d2t",
                                                 "embed_tokens.weight"};
  const auto read = [&](std::string_view text) {
    return draft_config_from_hf(files_of(text), tensors);
  };
  auto config = read(kSpeculators);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().target_layer_ids, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(config.value().vocab_size, 6u);
  EXPECT_EQ(config.value().draft_vocab_size, 4u);
  EXPECT_EQ(config.value().block_size, 8u);
  EXPECT_TRUE(config.value().own_head && config.value().own_embedding);
  EXPECT_FALSE(config.value().id_map_is_absolute);
  EXPECT_TRUE(config.value().causal_in_block(0));
  EXPECT_FALSE(config.value().causal_in_block(1));
  const auto symmetric = read(replaced(kSpeculators, "non_causal\": false", "non_causal\": true"));
  EXPECT_FALSE(symmetric.value().causal_in_block(0));

  EXPECT_EQ(read(replaced(kSpeculators, "[2, 4]", "[0, 4]")).status().code(),
            Code::invalid_argument)
      << "0 is the embedding";
  EXPECT_EQ(read(replaced(kSpeculators, R"("draft_vocab_size": 4,)", "")).status().code(),
            Code::mismatch);
  EXPECT_EQ(read(with(kSpeculators, R"("sample_from_anchor": true)")).status().code(),
            Code::unsupported);
  EXPECT_EQ(draft(kSpeculators).status().code(), Code::mismatch) << "no head of its own";
}

TEST(HfDraftConfig, IsToldFromATarget) {
  const auto is_draft = [](std::string_view text) {
    return is_draft_config(JsonDocument::parse(text, "config.json").value());
  };
  EXPECT_TRUE(is_draft(kTinyDraftConfig));
  EXPECT_TRUE(is_draft(R"({"speculators_model_type": "dflash"})"));
  EXPECT_TRUE(is_draft(R"({"architectures": ["Qwen3DSparkModel"]})"));
  EXPECT_FALSE(is_draft(kTinyConfig));
  EXPECT_FALSE(is_draft(R"({"architectures": "DFlashDraftModel"})"));
  EXPECT_FALSE(is_draft("{}"));
}

TEST(JsonDocument, RefusesWhatCouldHurt) {
  const auto code = [](std::string_view text) {
    return JsonDocument::parse(text, "x.json").status().code();
  };
  EXPECT_EQ(code(""), Code::corrupt);
  EXPECT_EQ(code("{\"a\": 1, \"a\": 2}"), Code::corrupt);
  EXPECT_EQ(code(std::string(100'000, '[')), Code::corrupt);
  EXPECT_EQ(code(std::string(70, '[') + std::string(70, ']')), Code::corrupt);
  EXPECT_EQ(code("[1e999]"), Code::corrupt);
  EXPECT_EQ(code("\"\xc3\""), Code::corrupt);
  std::string many = "[0";
  for (int i = 0; i < (1 << 21); ++i) many += ",0";
  EXPECT_EQ(code(many + "]"), Code::corrupt);
  EXPECT_TRUE(JsonDocument::parse("{\"a\": {\"a\": [1, 2]}}", "x.json").ok());
}

}  // namespace
}  // namespace drafthouse
