// Families whose GGUF files name, order or fold tensors in a way of their own: the tiny
// checkpoints, written as converters write them, compute what the folders compute, bit for bit.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "tests/golden/gguf_twin.h"
#include "text/test_data.h"

namespace drafthouse {
namespace {

using test::GgufTwin;
using Values = GgufTwin::Values;
using Shape = GgufTwin::Shape;

std::vector<double> scored(const std::string& path, bool fp32) {
  Result<std::unique_ptr<Engine>> engine = Engine::load({.target = path, .compute_fp32 = fp32});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  if (!engine.ok()) return {};
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 150; ++i) ids.push_back((i * 71 + i * i) % 256);
  const Result<ScoreResult> score = engine.value()->score({.ids = ids, .width = 16});
  EXPECT_TRUE(score.ok()) << (score.ok() ? "" : score.status().message());
  return score.ok() ? score.value().logprob : std::vector<double>{};
}

std::string layer_of(std::size_t layer) { return "model.layers." + std::to_string(layer) + "."; }
std::string block_of(std::size_t layer) { return "blk." + std::to_string(layer) + "."; }

void copy_names(GgufTwin& twin, std::size_t layer,
                const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [from, to] : names) twin.copy(layer_of(layer) + from, block_of(layer) + to);
}

// Experts of a folder that has one tensor for each matrix of each, or gate and up in one.
void copy_experts(GgufTwin& twin, const std::string& from, const std::string& to, std::size_t count,
                  std::size_t width, std::size_t hidden) {
  Values parts[3];
  for (std::size_t e = 0; e < count; ++e) {
    const std::string own = from + std::to_string(e) + ".";
    if (twin.has(own + "gate_proj.weight")) {
      std::size_t part = 0;
      for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
        const Values one = twin.values(own + name + ".weight");
        parts[part].insert(parts[part].end(), one.begin(), one.end());
        ++part;
      }
    } else {
      const Values both = twin.values(from + "gate_up_proj");
      const std::size_t half = width * hidden;
      for (std::size_t part = 0; part < 2; ++part) {
        const float* begin = both.data() + (2 * e + part) * half;
        parts[part].insert(parts[part].end(), begin, begin + half);
      }
    }
  }
  if (parts[2].empty()) parts[2] = twin.values(from + "down_proj");
  twin.matrix(to + "ffn_gate_exps.weight", {count, width, hidden}, parts[0]);
  twin.matrix(to + "ffn_up_exps.weight", {count, width, hidden}, parts[1]);
  twin.matrix(to + "ffn_down_exps.weight", {count, hidden, width}, parts[2]);
}

void shared_keys(GgufTwin& twin, const std::string& architecture) {
  const nlohmann::json config = twin.config();
  const std::string p = architecture + ".";
  twin.file.text("general.architecture", architecture)
      .u32(p + "block_count", config["num_hidden_layers"])
      .u32(p + "context_length", config["max_position_embeddings"])
      .u32(p + "embedding_length", config["hidden_size"])
      .u32(p + "attention.head_count", config["num_attention_heads"]);
  const char* eps = config.contains("norm_eps") ? "norm_eps" : "rms_norm_eps";
  twin.file.f32(p + "attention.layer_norm_rms_epsilon", config[eps]);
}

void expert_keys(GgufTwin& twin, const std::string& p, const char* per_row) {
  const nlohmann::json config = twin.config();
  twin.file.u32(p + "expert_count", config["num_experts"])
      .u32(p + "expert_used_count", config[per_row])
      .u32(p + "expert_feed_forward_length", config["moe_intermediate_size"]);
}

void write_gemma4(GgufTwin& twin) {
  const nlohmann::json config = twin.config();
  const std::string p = "gemma4.";
  shared_keys(twin, "gemma4");
  const std::size_t layers = config["num_hidden_layers"];
  const std::size_t shared = config["num_kv_shared_layers"];
  std::vector<std::uint8_t> sliding;
  std::vector<std::uint32_t> kv_heads, widths;
  std::uint32_t full_dim = 0;
  for (std::size_t i = 0; i < layers; ++i) {
    sliding.push_back(config["layer_types"][i] == "sliding_attention" ? 1 : 0);
    std::uint32_t heads = config["num_key_value_heads"];
    const std::string index = std::to_string(i);
    if (config["per_layer_config"].contains(index)) {
      const nlohmann::json& own = config["per_layer_config"][index];
      heads = own.value("num_key_value_heads", heads);
      full_dim = own["head_dim"];
    }
    kv_heads.push_back(heads);
    const bool wide = config["use_double_wide_mlp"].get<bool>() && i >= layers - shared;
    widths.push_back(config["intermediate_size"].get<std::uint32_t>() * (wide ? 2 : 1));
  }
  const std::uint32_t dim = config["head_dim"];
  const nlohmann::json& rope = config["rope_parameters"];
  twin.file.u32s(p + "feed_forward_length", widths)
      .u32s(p + "attention.head_count_kv", kv_heads)
      .u32(p + "attention.key_length", full_dim)
      .u32(p + "attention.value_length", full_dim)
      .u32(p + "attention.key_length_swa", dim)
      .u32(p + "attention.value_length_swa", dim)
      .u32(p + "rope.dimension_count", full_dim)
      .u32(p + "rope.dimension_count_swa", dim)
      .f32(p + "rope.freq_base", rope["full_attention"]["rope_theta"])
      .f32(p + "rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
      .u32(p + "attention.sliding_window", config["sliding_window"])
      .flags(p + "attention.sliding_window_pattern", sliding)
      .u32(p + "attention.shared_kv_layers", static_cast<std::uint32_t>(shared))
      .u32(p + "embedding_length_per_layer_input", config["hidden_size_per_layer_input"])
      .f32(p + "final_logit_softcapping", config["final_logit_softcapping"]);
  const bool experts = config["enable_moe_block"];
  if (experts) expert_keys(twin, p, "top_k_experts");

  twin.copy("model.embed_tokens.weight", "token_embd.weight");
  twin.copy("model.norm.weight", "output_norm.weight");
  twin.copy("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight");
  twin.copy("model.per_layer_model_projection.weight", "per_layer_model_proj.weight");
  twin.copy("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight");
  const double part = rope["full_attention"]["partial_rotary_factor"];
  Values divisors(full_dim / 2, 1e30f);
  std::fill_n(divisors.begin(), static_cast<std::size_t>(part * full_dim / 2), 1.0f);
  twin.vector("rope_freqs.weight", {divisors.size()}, divisors);
  for (std::size_t i = 0; i < layers; ++i) {
    copy_names(twin, i,
               {{"input_layernorm.weight", "attn_norm.weight"},
                {"self_attn.q_proj.weight", "attn_q.weight"},
                {"self_attn.k_proj.weight", "attn_k.weight"},
                {"self_attn.v_proj.weight", "attn_v.weight"},
                {"self_attn.o_proj.weight", "attn_output.weight"},
                {"self_attn.q_norm.weight", "attn_q_norm.weight"},
                {"self_attn.k_norm.weight", "attn_k_norm.weight"},
                {"post_attention_layernorm.weight", "post_attention_norm.weight"},
                {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
                {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
                {"mlp.gate_proj.weight", "ffn_gate.weight"},
                {"mlp.up_proj.weight", "ffn_up.weight"},
                {"mlp.down_proj.weight", "ffn_down.weight"},
                {"layer_scalar", "layer_output_scale.weight"},
                {"per_layer_input_gate.weight", "inp_gate.weight"},
                {"per_layer_projection.weight", "proj.weight"},
                {"post_per_layer_input_norm.weight", "post_norm.weight"}});
    if (!experts) continue;
    copy_names(twin, i,
               {{"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
                {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
                {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
                {"router.proj.weight", "ffn_gate_inp.weight"},
                {"router.scale", "ffn_gate_inp.scale"},
                {"router.per_expert_scale", "ffn_down_exps.scale"},
                // Gate and up stay together in newer files.
                {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
                {"experts.down_proj", "ffn_down_exps.weight"}});
  }
}

void write_lfm2(GgufTwin& twin) {
  const nlohmann::json config = twin.config();
  shared_keys(twin, "lfm2");
  std::vector<std::uint32_t> kv_heads;
  for (const auto& type : config["layer_types"]) {
    kv_heads.push_back(type == "conv" ? 0u : config["num_key_value_heads"].get<std::uint32_t>());
  }
  twin.file.u32s("lfm2.attention.head_count_kv", kv_heads)
      .u32("lfm2.feed_forward_length", config["intermediate_size"])
      .u32("lfm2.shortconv.l_cache", config["conv_L_cache"])
      .f32("lfm2.rope.freq_base", config["rope_parameters"]["rope_theta"]);
  twin.copy("model.embed_tokens.weight", "token_embd.weight");
  twin.copy("model.embedding_norm.weight", "token_embd_norm.weight");
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    copy_names(twin, i,
               {{"operator_norm.weight", "attn_norm.weight"},
                {"self_attn.q_proj.weight", "attn_q.weight"},
                {"self_attn.k_proj.weight", "attn_k.weight"},
                {"self_attn.v_proj.weight", "attn_v.weight"},
                {"self_attn.out_proj.weight", "attn_output.weight"},
                {"self_attn.q_layernorm.weight", "attn_q_norm.weight"},
                {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
                {"conv.in_proj.weight", "shortconv.in_proj.weight"},
                {"conv.out_proj.weight", "shortconv.out_proj.weight"},
                {"ffn_norm.weight", "ffn_norm.weight"},
                {"feed_forward.w1.weight", "ffn_gate.weight"},
                {"feed_forward.w2.weight", "ffn_down.weight"},
                {"feed_forward.w3.weight", "ffn_up.weight"}});
    const std::string taps = layer_of(i) + "conv.conv.weight";
    if (!twin.has(taps)) continue;
    twin.vector(block_of(i) + "shortconv.conv.weight", {twin.shape(taps)[0], twin.shape(taps)[2]},
                twin.values(taps));
  }
}

// The value heads of a recurrent layer.
struct Heads {
  std::size_t keys, values, key_dim, value_dim;
  std::size_t before() const { return 2 * keys * key_dim; }
};
Heads heads_of(const nlohmann::json& config) {
  return {config["linear_num_key_heads"], config["linear_num_value_heads"],
          config["linear_key_head_dim"], config["linear_value_head_dim"]};
}

// Value heads in the order of newer files: all first ones of the key heads, then all second ones.
// `row`: values of one unit of a head; `units`: of a head; `first`: units that stay.
Values tiled(const Values& all, const Heads& heads, std::size_t row, std::size_t units,
             std::size_t first = 0) {
  Values out(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first * row));
  const std::size_t group = heads.values / heads.keys;
  for (std::size_t r = 0; r < group; ++r) {
    for (std::size_t k = 0; k < heads.keys; ++k) {
      const float* head = all.data() + (first + (k * group + r) * units) * row;
      out.insert(out.end(), head, head + units * row);
    }
  }
  return out;
}

void copy_delta_rule(GgufTwin& twin, const std::string& from, const std::string& to, bool next) {
  const Heads heads = heads_of(twin.config());
  const std::size_t hidden = twin.config()["hidden_size"];
  const auto order = [&](const Values& all, std::size_t row, std::size_t units, std::size_t first) {
    return next ? all : tiled(all, heads, row, units, first);
  };
  const std::size_t values = heads.values * heads.value_dim;
  const std::size_t channels = heads.before() + values;
  if (next) {
    // Rows of q, k, v and z of each key head, taken apart.
    const Values fused = twin.values(from + "in_proj_qkvz.weight");
    const std::size_t of_values = values / heads.keys;
    const std::size_t sizes[] = {heads.key_dim, heads.key_dim, of_values, of_values};
    Values qkv, z;
    std::size_t begin = 0;
    for (std::size_t part = 0; part < 4; ++part) {
      for (std::size_t k = 0; k < heads.keys; ++k) {
        const std::size_t of_head = 2 * heads.key_dim + 2 * of_values;
        const float* rows = fused.data() + (k * of_head + begin) * hidden;
        Values& out = part < 3 ? qkv : z;
        out.insert(out.end(), rows, rows + sizes[part] * hidden);
      }
      begin += sizes[part];
    }
    twin.matrix(to + "attn_qkv.weight", {channels, hidden}, qkv);
    twin.matrix(to + "attn_gate.weight", {values, hidden}, z);
    twin.copy(from + "in_proj_ba.weight", to + "ssm_ba.weight");
  } else {
    twin.matrix(
        to + "attn_qkv.weight", {channels, hidden},
        order(twin.values(from + "in_proj_qkv.weight"), hidden, heads.value_dim, heads.before()));
    twin.matrix(to + "attn_gate.weight", {values, hidden},
                order(twin.values(from + "in_proj_z.weight"), hidden, heads.value_dim, 0));
    twin.matrix(to + "ssm_beta.weight", {heads.values, hidden},
                order(twin.values(from + "in_proj_b.weight"), hidden, 1, 0));
    twin.matrix(to + "ssm_alpha.weight", {heads.values, hidden},
                order(twin.values(from + "in_proj_a.weight"), hidden, 1, 0));
  }
  const std::size_t kernel = twin.config()["linear_conv_kernel_dim"];
  twin.vector(to + "ssm_conv1d.weight", {channels, kernel},
              order(twin.values(from + "conv1d.weight"), kernel, heads.value_dim, heads.before()));
  Values rates = order(twin.values(from + "A_log"), 1, 1, 0);
  for (float& rate : rates) rate = -std::exp(rate);
  twin.vector(to + "ssm_a", {rates.size()}, rates);
  twin.vector(to + "ssm_dt.bias", {rates.size()}, order(twin.values(from + "dt_bias"), 1, 1, 0));
  twin.copy(from + "norm.weight", to + "ssm_norm.weight");
  Values columns;
  const Values out = twin.values(from + "out_proj.weight");
  for (std::size_t row = 0; row < hidden; ++row) {
    const Values one(out.begin() + static_cast<std::ptrdiff_t>(row * values),
                     out.begin() + static_cast<std::ptrdiff_t>((row + 1) * values));
    const Values moved = order(one, 1, heads.value_dim, 0);
    columns.insert(columns.end(), moved.begin(), moved.end());
  }
  twin.matrix(to + "ssm_out.weight", {hidden, values}, columns);
}

// `proposing`: with one more block, which is no part of the model.
void write_qwen(GgufTwin& twin, const std::string& architecture, bool proposing) {
  const bool next = architecture == "qwen3next";
  const nlohmann::json config = twin.config();
  const std::string p = architecture + ".";
  const std::size_t layers = config["num_hidden_layers"];
  const bool experts = config.contains("num_experts");
  const Heads heads = heads_of(config);
  twin.file.text("general.architecture", architecture)
      .u32(p + "block_count", static_cast<std::uint32_t>(layers + (proposing ? 1 : 0)))
      .u32(p + "context_length", config["max_position_embeddings"])
      .u32(p + "embedding_length", config["hidden_size"])
      .u32(p + "attention.head_count", config["num_attention_heads"])
      .u32(p + "attention.head_count_kv", config["num_key_value_heads"])
      .u32(p + "attention.key_length", config["head_dim"])
      .u32(p + "attention.value_length", config["head_dim"])
      .f32(p + "attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
      .u32(p + "rope.dimension_count", config["head_dim"].get<std::uint32_t>() / 4)
      .f32(p + "rope.freq_base", config["rope_parameters"]["rope_theta"])
      .u32(p + "full_attention_interval", 4)
      .u32(p + "ssm.conv_kernel", config["linear_conv_kernel_dim"])
      .u32(p + "ssm.state_size", static_cast<std::uint32_t>(heads.key_dim))
      .u32(p + "ssm.group_count", static_cast<std::uint32_t>(heads.keys))
      .u32(p + "ssm.time_step_rank", static_cast<std::uint32_t>(heads.values))
      .u32(p + "ssm.inner_size", static_cast<std::uint32_t>(heads.values * heads.value_dim));
  if (proposing) twin.file.u32(p + "nextn_predict_layers", 1);
  if (config.contains("intermediate_size")) {
    twin.file.u32(p + "feed_forward_length", config["intermediate_size"]);
  }
  if (experts) {
    expert_keys(twin, p, "num_experts_per_tok");
    twin.file.u32(p + "expert_shared_feed_forward_length",
                  config["shared_expert_intermediate_size"]);
  }
  twin.copy("model.embed_tokens.weight", "token_embd.weight");
  twin.copy_gain("model.norm.weight", "output_norm.weight");
  twin.copy("lm_head.weight", "output.weight");
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string from = layer_of(i);
    const std::string to = block_of(i);
    twin.copy_gain(from + "input_layernorm.weight", to + "attn_norm.weight");
    twin.copy_gain(from + "post_attention_layernorm.weight", to + "post_attention_norm.weight");
    if (config["layer_types"][i] == "full_attention") {
      copy_names(twin, i,
                 {{"self_attn.q_proj.weight", "attn_q.weight"},
                  {"self_attn.k_proj.weight", "attn_k.weight"},
                  {"self_attn.v_proj.weight", "attn_v.weight"},
                  {"self_attn.o_proj.weight", "attn_output.weight"}});
      twin.copy_gain(from + "self_attn.q_norm.weight", to + "attn_q_norm.weight");
      twin.copy_gain(from + "self_attn.k_norm.weight", to + "attn_k_norm.weight");
    } else {
      copy_delta_rule(twin, from + "linear_attn.", to, next);
    }
    if (!experts) {
      copy_names(twin, i,
                 {{"mlp.gate_proj.weight", "ffn_gate.weight"},
                  {"mlp.up_proj.weight", "ffn_up.weight"},
                  {"mlp.down_proj.weight", "ffn_down.weight"}});
      continue;
    }
    copy_names(twin, i,
               {{"mlp.gate.weight", "ffn_gate_inp.weight"},
                {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
                {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
                {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"}});
    const std::string gate = from + "mlp.shared_expert_gate.weight";
    twin.matrix(to + "ffn_gate_inp_shexp.weight", {twin.shape(gate)[1]}, twin.values(gate));
    copy_experts(twin, from + "mlp.experts.", to, config["num_experts"],
                 config["moe_intermediate_size"], config["hidden_size"]);
  }
  if (!proposing) return;
  twin.vector(block_of(layers) + "attn_norm.weight", {4}, Values(4, 1.0f));
  twin.vector(block_of(layers) + "nextn.eh_proj.weight", {4}, Values(4, 1.0f));
}

void check(const std::string& name, const std::function<void(GgufTwin&)>& write) {
  const std::string folder = test::data_path("tiny/" + name);
  if (folder.empty()) GTEST_SKIP() << "tiny/" << name << " is in the larger set of test data only";
  using Kind = GgufTwin::Kind;
  for (const Kind kind : {Kind::bf16, Kind::f16, Kind::f32, Kind::q8_0}) {
    SCOPED_TRACE(static_cast<int>(kind));
    GgufTwin twin(folder, kind);
    write(twin);
    testing::TempFolder as_folder, as_file;
    twin.write_folder(as_folder);
    const std::string path = as_file.write("model.gguf", twin.file.build());
    // The folder has the values of the file's codes, which only fp32 inputs take as they are.
    const bool fp32 = kind == Kind::q8_0;
    const std::vector<double> want = scored(as_folder.path(), fp32);
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(scored(path, fp32), want);
  }
}

TEST(GgufHybrids, Gemma4Dense) { check("gemma4-dense", write_gemma4); }
TEST(GgufHybrids, Gemma4Moe) { check("gemma4-moe", write_gemma4); }
TEST(GgufHybrids, Gemma4E) { check("gemma4-e", write_gemma4); }
TEST(GgufHybrids, Lfm2) { check("lfm2", write_lfm2); }
TEST(GgufHybrids, Qwen35) {
  check("qwen3_5", [](GgufTwin& twin) { write_qwen(twin, "qwen35", false); });
}
TEST(GgufHybrids, Qwen35BeforeTheBlocksThatPropose) {
  check("qwen3_5", [](GgufTwin& twin) { write_qwen(twin, "qwen35", true); });
}
TEST(GgufHybrids, Qwen35Moe) {
  check("qwen3_5_moe", [](GgufTwin& twin) { write_qwen(twin, "qwen35moe", false); });
}
TEST(GgufHybrids, Qwen3Next) {
  check("qwen3_next", [](GgufTwin& twin) { write_qwen(twin, "qwen3next", false); });
}

void write_vocabulary(GgufTwin& twin, const GgufVocabulary& vocabulary) {
  std::string types;
  for (const std::int32_t type : vocabulary.token_types) types += testing::raw(type);
  twin.file.text("tokenizer.ggml.model", vocabulary.model)
      .texts("tokenizer.ggml.tokens", vocabulary.tokens)
      .list("tokenizer.ggml.token_type", 5, vocabulary.token_types.size(), types)
      .texts("tokenizer.ggml.merges", vocabulary.merges);
}

// A file with its vocabulary and chat template answers as the folder does, text for text.
TEST(GgufHybrids, Gemma4Talks) {
  const std::string folder = test::data_path("models/nano-gemma4/target");
  if (folder.empty())
    GTEST_SKIP() << "models/nano-gemma4/target is in the larger set of test data only";
  GgufTwin twin(folder, GgufTwin::Kind::bf16);
  write_gemma4(twin);
  const nlohmann::json said = test::read_json(folder + "/tokenizer_config.json");
  write_vocabulary(twin,
                   test::converted(test::read_json(folder + "/tokenizer.json"), "gemma4", ""));
  twin.file.text("tokenizer.chat_template", said["chat_template"].get<std::string>())
      .u32("tokenizer.ggml.bos_token_id", 2)
      .u32("tokenizer.ggml.eos_token_id", 1);
  testing::TempFolder temp;
  const auto file = Engine::load({.target = temp.write("model.gguf", twin.file.build())}).value();
  const auto whole = Engine::load({.target = folder}).value();
  const std::vector<ChatTurn> question = {{"user", "Add two numbers\n\nin Python.  Grüße 東京"}};
  const auto prompt = whole->encode_chat(question).value();
  EXPECT_EQ(file->encode_chat(question).value(), prompt);
  const GenerateRequest request{.prompt_ids = prompt, .max_tokens = 200};
  const auto want = whole->generate(request).value();
  const auto got = file->generate(request).value();
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish_reason, want.finish_reason);
  EXPECT_EQ(file->encode("a", true).value().front(), 2u) << "plain text begins with BOS";
}

}  // namespace
}  // namespace drafthouse
