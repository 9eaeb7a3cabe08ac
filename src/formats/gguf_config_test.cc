#include "formats/gguf_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "formats/checkpoint.h"
#include "formats/gguf_names.h"
#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::GgufBuilder;
using testing::raw;
using testing::TempFolder;

Result<Checkpoint> open(const TempFolder& folder, const GgufBuilder& file) {
  return Checkpoint::open(folder.write("model.gguf", file.build()));
}

TEST(GgufNames, BecomeHuggingFaceNames) {
  EXPECT_EQ(target_tensor_name("", "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(target_tensor_name("", "output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(target_tensor_name("", "output.weight"), "lm_head.weight");
  EXPECT_EQ(target_tensor_name("", "blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(target_tensor_name("", "blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(target_tensor_name("", "blk.0.attn_output.weight"),
            "model.layers.0.self_attn.o_proj.weight");
  for (const char* same :
       {"rope_freqs.weight", "blk.x.attn_q.weight", "blk.01.attn_q.weight", "blk.0.unknown.weight",
        "blk.0", "blk.", "", ".", "blk.0.attn_q.scale", "blk.99999.attn_q.weight"}) {
    EXPECT_EQ(target_tensor_name("", same), same);
  }
}

TEST(GgufNames, OfArchitecturesWithTheirOwn) {
  EXPECT_EQ(target_tensor_name("gemma4", "blk.2.ffn_norm.weight"),
            "model.layers.2.pre_feedforward_layernorm.weight");
  EXPECT_EQ(target_tensor_name("gemma4", "blk.2.ffn_down_exps.scale"),
            "model.layers.2.router.per_expert_scale");
  EXPECT_EQ(target_tensor_name("gemma4", "blk.2.attn_q.weight"),
            "model.layers.2.self_attn.q_proj.weight");
  EXPECT_EQ(target_tensor_name("qwen35", "blk.0.ssm_a"), "model.layers.0.linear_attn.rate");
  EXPECT_EQ(target_tensor_name("qwen35moe", "blk.0.ssm_dt.bias"),
            "model.layers.0.linear_attn.dt_bias");
  EXPECT_EQ(target_tensor_name("lfm2", "token_embd_norm.weight"), "model.embedding_norm.weight");
  EXPECT_EQ(target_tensor_name("lfm2", "blk.1.shortconv.conv.weight"),
            "model.layers.1.conv.conv.weight");
  for (const char* same : {"ssm_a", "blk.0.ssm_a.weight", "blk.x.ssm_a", "blk.0."}) {
    EXPECT_EQ(target_tensor_name("qwen35", same), same);
  }
}

TEST(GgufNames, OfDraftsInBothStyles) {
  EXPECT_EQ(draft_tensor_name("blk.3.ffn_down.weight"), "layers.3.mlp.down_proj.weight");
  EXPECT_EQ(draft_tensor_name("output_norm.weight"), "norm.weight");
  EXPECT_EQ(draft_tensor_name("enc.output_norm.weight"), "hidden_norm.weight");
  EXPECT_EQ(draft_tensor_name("output_norm_enc.weight"), "hidden_norm.weight");
  for (const char* same : {"fc.weight", "hidden_norm.weight", "layers.3.self_attn.q_proj.weight"}) {
    EXPECT_EQ(draft_tensor_name(same), same);
  }
}

TEST(GgufConfig, ReadsATarget) {
  TempFolder folder;
  auto opened = open(folder, testing::tiny_gguf("llama"));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_FALSE(opened.value().is_draft());
  auto read = opened.value().model_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.hidden_size, 8u);
  EXPECT_EQ(config.head_dim, 4u);
  EXPECT_EQ(config.kv_heads, 1u);
  EXPECT_EQ(config.vocab_size, 6u);
  EXPECT_TRUE(config.tied_head);
  EXPECT_TRUE(config.interleaved_rope_rows);
  EXPECT_EQ(config.rope.scaling, RopeScaling::none);
  EXPECT_EQ(config.eos_ids, (std::vector<std::uint32_t>{2, 3}));
  EXPECT_EQ(opened.value().draft_config().status().code(), Code::mismatch);
}

TEST(GgufConfig, ReadsHeadBiasesAndRopeDivisors) {
  TempFolder folder;
  GgufBuilder file = testing::tiny_gguf("llama");
  file.tensor("output.weight", {8, 6});
  file.tensor("blk.0.attn_q.bias", {8});
  file.tensor("rope_freqs.weight", {2}, 0, raw(1.0f) + raw(8.0f));
  auto opened = open(folder, file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto config = opened.value().model_config();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config.value().tied_head);
  EXPECT_TRUE(config.value().attention_bias);
  EXPECT_EQ(config.value().rope.divisors, (std::vector<float>{1.0f, 8.0f}));
}

TEST(GgufConfig, RefusesByField) {
  struct Case {
    std::function<void(GgufBuilder&)> change;
    Code code;
    std::string named;
  };
  const std::vector<Case> all = {
      {[](auto& f) { f.u32("qwen3.attention.key_length", 6); }, Code::unsupported, "value_length"},
      {[](auto& f) { f.u32("qwen3.rope.dimension_count", 2); }, Code::unsupported,
       "rope.dimension_count"},
      {[](auto& f) { f.text("qwen3.rope.scaling.type", "longrope"); }, Code::unsupported,
       "longrope"},
      {[](auto& f) { f.text("qwen3.rope.scaling.type", "yarn"); }, Code::invalid_argument,
       "rope.scaling.factor"},
      {[](auto& f) { f.u32("qwen3.expert_count", 8); }, Code::unsupported, "expert_count"},
      {[](auto& f) { f.tensor("rope_freqs.weight", {3}); }, Code::invalid_argument, "rope_freqs"},
      {[](auto& f) { f.tensor("rope_freqs.weight", {2}, 0, raw(0.0f) + raw(1.0f)); }, Code::corrupt,
       "rope_freqs"},
  };
  for (const Case& one : all) {
    TempFolder folder;
    GgufBuilder file = testing::tiny_gguf("qwen3");
    if (one.named == "value_length") file.u32("qwen3.attention.value_length", 4);
    one.change(file);
    auto opened = open(folder, file);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto config = opened.value().model_config();
    ASSERT_FALSE(config.ok()) << one.named;
    EXPECT_EQ(config.status().code(), one.code) << config.status().message();
    EXPECT_NE(config.status().message().find(one.named), std::string::npos)
        << config.status().message();
  }
  TempFolder folder;
  auto other = open(folder, testing::tiny_gguf("gemma2"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().model_config().status().code(), Code::unsupported);
}

GgufBuilder tiny_qwen35() {
  GgufBuilder file = testing::tiny_gguf("qwen35");
  file.u32("qwen35.ssm.conv_kernel", 4)
      .u32("qwen35.ssm.group_count", 1)
      .u32("qwen35.ssm.state_size", 4);
  return file;
}

TEST(GgufConfig, ReadsRecurrentLayers) {
  TempFolder folder;
  GgufBuilder file = tiny_qwen35();
  file.u32("qwen35.ssm.time_step_rank", 2)
      .u32("qwen35.ssm.inner_size", 16)
      .u32("qwen35.full_attention_interval", 2)
      .u32("qwen35.rope.dimension_count", 2);
  auto opened = open(folder, file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto read = opened.value().model_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  const ModelConfig& config = read.value();
  EXPECT_EQ(config.family, "qwen3_5");
  EXPECT_EQ(config.layer_table[0].kind, LayerKind::delta_rule);
  EXPECT_EQ(config.recurrent.value_dim, 8u);
  EXPECT_EQ(config.rope.rotary_dim, 2u);
  EXPECT_TRUE(config.tiled_value_heads);
  EXPECT_FALSE(config.gain_from_one);
}

// Of architectures whose layers differ. Every file lacks or damages the field that is named.
TEST(GgufConfig, RefusesLayersThatDoNotFit) {
  struct Case {
    std::string architecture;
    std::function<void(GgufBuilder&)> change;
    std::string named;
  };
  const auto gemma4 = [](GgufBuilder& f) {
    f.u32("gemma4.attention.sliding_window", 8).tensor("rope_freqs.weight", {2});
  };
  const std::vector<Case> all = {
      {"qwen35", [](auto&) {}, "ssm.conv_kernel"},
      {"qwen35", [](auto& f) { f.u32("qwen35.nextn_predict_layers", 1); }, "nextn_predict_layers"},
      {"qwen35", [](auto& f) { f.u32("qwen35.rope.dimension_count", 3); }, "rope.dimension_count"},
      {"qwen35",
       [](auto& f) {
         f.u32("qwen35.ssm.conv_kernel", 4).u32("qwen35.ssm.group_count", 1);
         f.u32("qwen35.ssm.state_size", 4).u32("qwen35.ssm.time_step_rank", 3);
         f.u32("qwen35.ssm.inner_size", 16);
       },
       "ssm.inner_size"},
      {"qwen35moe", [](auto& f) { f.u32("qwen35moe.expert_count", 2); }, "expert_used_count"},
      {"qwen3next", [](auto& f) { f.u32("qwen3next.attention.sliding_window", 2); },
       "attention.sliding_window"},
      {"lfm2", [](auto&) {}, "shortconv.l_cache"},
      {"gemma4", [](auto&) {}, "attention.sliding_window"},
      {"gemma4", gemma4, "sliding_window_pattern"},
      {"gemma4",
       [&](auto& f) {
         gemma4(f);
         f.flags("gemma4.attention.sliding_window_pattern", {});
       },
       "sliding_window_pattern"},
      {"gemma4",
       [](auto& f) {
         f.u32("gemma4.attention.sliding_window", 8);
         f.flags("gemma4.attention.sliding_window_pattern", {0});
       },
       "rope_freqs"},
      {"gemma4",
       [&](auto& f) {
         gemma4(f);
         f.flags("gemma4.attention.sliding_window_pattern", {0});
         f.u32("gemma4.attention.shared_kv_layers", 1);
       },
       "shared_kv_layers"},
      {"gemma4",
       [&](auto& f) {
         gemma4(f);
         f.flags("gemma4.attention.sliding_window_pattern", {0});
         f.u32("gemma4.attention.key_length_swa", 6);
         f.u32("gemma4.attention.value_length_swa", 4);
       },
       "value_length_swa"},
  };
  for (const Case& one : all) {
    TempFolder folder;
    GgufBuilder file = testing::tiny_gguf(one.architecture);
    one.change(file);
    auto opened = open(folder, file);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto config = opened.value().model_config();
    ASSERT_FALSE(config.ok()) << one.architecture << " " << one.named;
    EXPECT_NE(config.status().message().find(one.named), std::string::npos)
        << config.status().message();
  }
  // Lists of one entry for each layer.
  TempFolder folder;
  GgufBuilder lists;
  lists.text("general.architecture", "lfm2")
      .u32("lfm2.block_count", 2)
      .u32("lfm2.context_length", 64)
      .u32("lfm2.embedding_length", 8)
      .u32("lfm2.feed_forward_length", 12)
      .u32("lfm2.attention.head_count", 2)
      .u32s("lfm2.attention.head_count_kv", {1})
      .f32("lfm2.attention.layer_norm_rms_epsilon", 1e-6f)
      .u32("lfm2.shortconv.l_cache", 3);
  lists.tensor("token_embd.weight", {8, 6});
  auto opened = open(folder, lists);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto config = opened.value().model_config();
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.status().message().find("head_count_kv"), std::string::npos);
}

TEST(GgufConfig, Gemma4WithoutFullLayersNeedsNoDivisors) {
  TempFolder folder;
  GgufBuilder file = testing::tiny_gguf("gemma4");
  file.u32("gemma4.attention.sliding_window", 8)
      .flags("gemma4.attention.sliding_window_pattern", {1});
  auto opened = open(folder, file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto config = opened.value().model_config();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().layer_table[0].kind, LayerKind::sliding_attention);
}

TEST(GgufConfig, ReadsADraft) {
  TempFolder folder;
  GgufBuilder file = testing::tiny_draft_gguf();
  file.flags("dflash.attention.sliding_window_pattern", {0, 1})
      .u32("dflash.attention.sliding_window", 32)
      .flag("dflash.attention.causal", false)
      .u32("dflash.target_block_count", 5);
  auto opened = open(folder, file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened.value().is_draft());
  auto read = opened.value().draft_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  const DraftConfig& config = read.value();
  EXPECT_EQ(config.block_size, 8u);
  EXPECT_EQ(config.mask_id, 5u);
  EXPECT_EQ(config.target_layer_ids, (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(config.layer_types[0], LayerAttention::full);
  EXPECT_EQ(config.layer_types[1], LayerAttention::sliding);
  EXPECT_EQ(config.sliding_window, 32u);
  EXPECT_EQ(config.is_causal, false);
  EXPECT_EQ(config.num_target_layers, 5u);
  EXPECT_EQ(opened.value().model_config().status().code(), Code::invalid_argument);
}

TEST(GgufConfig, ReadsDrafts2AndDraftsWithAHeadOfTheirOwn) {
  TempFolder folder;
  GgufBuilder second = testing::tiny_draft_gguf();
  second.u32("dflash.conv_kernel_size", 2)
      .u32("dflash.conv_group_size", 4)
      .u32("dflash.selector_rank", 3)
      .u32("dflash.selector_top_k", 2)
      .tensor("blk.0.attn_conv_base", {8, 2, 2})
      .tensor("blk.0.attn_conv_proj.weight", {8, 8})
      .tensor("selector_hidden.weight", {8, 3})
      .tensor("selector_predecessor.weight", {3, 6});
  auto opened = open(folder, second);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto read = opened.value().draft_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().dflash2.selector_top_k, 2u);
  EXPECT_EQ(read.value().architecture, "DFlash2DraftModel");
  EXPECT_NE(opened.value().find("layers.0.attention_conv.base_kernel"), nullptr);
  EXPECT_NE(opened.value().find("candidate_selector.predecessor_codebook.weight"), nullptr);

  TempFolder other;
  GgufBuilder own = testing::tiny_draft_gguf();
  own.tensor("output.weight", {8, 4}).tensor("d2t", {4}).tensor("token_embd.weight", {8, 6});
  auto reduced = open(other, own);
  ASSERT_TRUE(reduced.ok()) << reduced.status().message();
  const DraftConfig config = reduced.value().draft_config().value();
  EXPECT_TRUE(config.own_head && config.own_embedding && config.id_map_is_absolute);
  EXPECT_EQ(config.draft_vocab_size, 4u);
}

TEST(GgufConfig, RefusesOtherDrafts) {
  struct Case {
    std::function<void(GgufBuilder&)> change;
    std::string named;
  };
  const std::vector<Case> all = {
      {[](auto& f) { f.flag("dflash.sample_from_anchor", true); }, "sample_from_anchor"},
      {[](auto& f) { f.text("dflash.decoder_arch", "laguna"); }, "decoder_arch"},
      {[](auto& f) { f.tensor("selector_hidden.weight", {8, 4}); }, "DFlash2"},
      {[](auto& f) { f.tensor("blk.0.attn_conv_proj.weight", {8, 4}); }, "DFlash2"},
      {[](auto& f) { f.u32("dflash.selector_top_k", 4); }, "conv_kernel_size"},
      {[](auto& f) { f.tensor("d2t", {8}); }, "vocab_size"},
      {[](auto& f) { f.tensor("d2t", {4}); }, "lm_head"},
      {[](auto& f) { f.tensor("conf_proj.weight", {8, 6}); }, "DSpark"},
      {[](auto& f) { f.u32("dflash.attention.sliding_window", 32); }, "sliding_window_pattern"},
  };
  for (const Case& one : all) {
    TempFolder folder;
    GgufBuilder file = testing::tiny_draft_gguf();
    one.change(file);
    auto opened = open(folder, file);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    auto config = opened.value().draft_config();
    ASSERT_FALSE(config.ok()) << one.named;
    EXPECT_NE(config.status().message().find(one.named), std::string::npos)
        << config.status().message();
  }
}

TEST(GgufConfig, TwoNamesOfOneTensorAreRefused) {
  TempFolder folder;
  GgufBuilder file = testing::tiny_draft_gguf();
  file.tensor("blk.0.attn_q.weight", {8, 8});
  EXPECT_EQ(open(folder, file).status().code(), Code::corrupt);
}

TEST(GgufText, IsTakenFromMetadata) {
  TempFolder folder;
  auto opened = open(folder, testing::tiny_gguf("qwen3"));
  ASSERT_TRUE(opened.ok());
  const TokenizerSource& text = opened.value().tokenizer();
  ASSERT_TRUE(text.gguf.has_value());
  EXPECT_EQ(text.gguf->model, "gpt2");
  EXPECT_EQ(text.gguf->pre, "smollm");
  EXPECT_EQ(text.gguf->tokens.size(), 5u);
  EXPECT_EQ(text.gguf->token_types[2], 3);
  EXPECT_EQ(text.gguf->merges.front(), "a b");
  EXPECT_EQ(text.eos_token, "<eos>");
  EXPECT_EQ(text.bos_token, std::nullopt);
  EXPECT_EQ(text.chat_template, "{{ messages }}");
  EXPECT_EQ(text.template_origin, text.origin + " (tokenizer.chat_template)");
}

TEST(GgufConfig, StopIdsThatNoRowCanGiveAreRefused) {
  using Change = void (*)(GgufBuilder&);
  const auto read = [](Change change) {
    TempFolder folder;
    GgufBuilder file = testing::tiny_gguf("qwen3");
    change(file);
    return open(folder, file).value().model_config();
  };
  for (const Change change : {
           +[](GgufBuilder& f) { f.u32("tokenizer.ggml.eot_token_id", 6); },
           +[](GgufBuilder& f) { f.text("tokenizer.ggml.eot_token_id", "6"); },
           +[](GgufBuilder& f) { f.f32("tokenizer.ggml.eom_token_id", 1); },
           +[](GgufBuilder& f) { f.u32s("tokenizer.ggml.eos_token_ids", {1, 6}); },
           +[](GgufBuilder& f) { f.u32("tokenizer.ggml.eos_token_ids", 1); },
       }) {
    const auto config = read(change);
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.status().message().find("tokenizer.ggml.eo"), std::string::npos);
  }
  EXPECT_NE(read([](GgufBuilder& f) { f.u32("tokenizer.ggml.eot_token_id", 6); })
                .status()
                .message()
                .find("tokenizer.ggml.eot_token_id is 6, which is not one of the 6 tokens"),
            std::string::npos);
  const auto good = read([](GgufBuilder& f) {
    f.u32("tokenizer.ggml.eot_token_id", 5).u32("tokenizer.ggml.eom_token_id", 0xffffffff);
    f.u32s("tokenizer.ggml.eos_token_ids", {1, 2});
  });
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good.value().eos_ids, (std::vector<std::uint32_t>{1, 2, 3, 5}));
}

// A file has no generation_config.json: what such files list is known by its text.
TEST(GgufConfig, TokensThatEndAnAnswerAreKnownByTheirText) {
  TempFolder folder;
  GgufBuilder file;
  file.text("general.architecture", "qwen3")
      .u32("qwen3.block_count", 1)
      .u32("qwen3.context_length", 64)
      .u32("qwen3.embedding_length", 8)
      .u32("qwen3.feed_forward_length", 12)
      .u32("qwen3.attention.head_count", 2)
      .f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f)
      .text("tokenizer.ggml.model", "gpt2")
      .texts("tokenizer.ggml.tokens", {"a", "<|end|>", "<|call|>", "<|return|>", "<|tool_response>",
                                       "<turn|>", "<|endoftext|>", "<|endoftext|> "})
      .tensor("token_embd.weight", {8, 8});
  auto opened = open(folder, file);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  auto config = opened.value().model_config();
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config.value().eos_ids, (std::vector<std::uint32_t>{2, 3, 4, 5, 6}));
}

TEST(GgufText, CountsAndIdsAreChecked) {
  TempFolder folder;
  GgufBuilder file;
  file.text("general.architecture", "qwen3")
      .text("tokenizer.ggml.model", "gpt2")
      .texts("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_TRUE(open(folder, file).ok());
  GgufBuilder none = file;
  none.u32("tokenizer.ggml.bos_token_id", 0xffffffff);
  EXPECT_TRUE(open(folder, none).ok());
  GgufBuilder beyond = file;
  beyond.u32("tokenizer.ggml.bos_token_id", 2);
  EXPECT_EQ(open(folder, beyond).status().code(), Code::corrupt);
  GgufBuilder short_types = file;
  short_types.u32s("tokenizer.ggml.token_type", {1});
  EXPECT_EQ(open(folder, short_types).status().code(), Code::corrupt);
}

}  // namespace
}  // namespace drafthouse
