#include "formats/hf_families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/hf_config.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/shared_layers.h"

namespace drafthouse {
namespace {

// A table of layers that are all as the shared fields say.
std::vector<LayerConfig> equal_layers(const ModelConfig& config) {
  return std::vector<LayerConfig>(config.layers, config.layer(0));
}

void check_experts(ConfigFields& fields, const ModelConfig& config, std::string_view key) {
  if (config.experts.per_row > config.experts.count) {
    fields.refuse(Code::invalid_argument, key,
                  fmt::format("is {}, but there are {} experts", config.experts.per_row,
                              config.experts.count));
  }
}

// layer_types, one kind for each layer. Required.
void read_layer_types(ConfigFields& fields, std::vector<LayerConfig>& layers) {
  const JsonView types = fields.json("layer_types");
  if (types.size() != layers.size()) {
    return fields.refuse(Code::invalid_argument, "layer_types",
                         fmt::format("has {} entries for {} layers", types.size(), layers.size()));
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool sliding = types.at(i).text() == "sliding_attention";
    layers[i].kind = sliding ? LayerKind::sliding_attention : LayerKind::full_attention;
  }
}

void read_qwen3_moe(ConfigFields& fields, const std::string& file, ModelConfig& config) {
  static_cast<void>(file);
  const std::string_view count = fields.has("num_experts") ? "num_experts" : "num_local_experts";
  config.experts.count = fields.count(count, {1, limits::kExpertsMax});
  config.experts.per_row = fields.count("num_experts_per_tok", {1, limits::kExpertsMax});
  config.experts.intermediate_size =
      fields.count("moe_intermediate_size", {1, limits::kIntermediateMax});
  config.experts.normalise = fields.flag("norm_topk_prob", false);
  check_experts(fields, config, "num_experts_per_tok");
  const std::uint32_t step = fields.count("decoder_sparse_step", {1, limits::kLayersMax}, 1);
  const auto dense =
      fields.wholes("mlp_only_layers", limits::kLayersMax).value_or(std::vector<std::int64_t>{});
  config.layer_table = equal_layers(config);
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    if ((i + 1) % step != 0 || std::find(dense.begin(), dense.end(), i) != dense.end()) continue;
    config.layer_table[i].experts = true;
    config.layer_table[i].intermediate_size = 0;
  }
}

// Sizes that full layers have for themselves: in published files under names of their own, in newer
// ones by layer.
void read_gemma4_shapes(ConfigFields& fields, ModelConfig& config) {
  const std::uint32_t head_dim =
      fields.count("global_head_dim", {2, limits::kHeadDimMax}, config.head_dim);
  const std::uint32_t kv_heads =
      fields.count("num_global_key_value_heads", {1, limits::kHeadsMax}, config.kv_heads);
  const JsonView by_layer = fields.json("per_layer_config");
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    LayerConfig& layer = config.layer_table[i];
    if (layer.kind == LayerKind::full_attention) {
      layer.head_dim = head_dim;
      if (config.value_is_key) layer.kv_heads = kv_heads;
    }
    const JsonView own = by_layer[std::to_string(i)];
    if (!own.is_object()) continue;
    ConfigFields sizes(fmt::format("per_layer_config of layer {}", i), {own});
    layer.head_dim = sizes.count("head_dim", {2, limits::kHeadDimMax}, layer.head_dim);
    layer.kv_heads = sizes.count("num_key_value_heads", {1, limits::kHeadsMax}, layer.kv_heads);
    fields.absorb(sizes);
  }
}

// The last layers attend to what the last layer of their kind before them stored, and may have an
// MLP twice as wide.
void share_gemma4_layers(ConfigFields& fields, ModelConfig& config) {
  const std::uint32_t shared =
      fields.count("num_kv_shared_layers", {0, config.layers > 0 ? config.layers - 1 : 0}, 0);
  const bool wide = fields.flag("use_double_wide_mlp", false);
  const std::uint32_t first = config.layers - shared;
  if (const auto alone = share_last_layers(config.layer_table, shared)) {
    fields.refuse(Code::invalid_argument, "num_kv_shared_layers",
                  fmt::format("is {}, but no layer before the last {} is of the kind of layer {}",
                              shared, shared, *alone));
  }
  for (std::uint32_t i = first; i < config.layers && wide; ++i) {
    config.layer_table[i].intermediate_size *= 2;
  }
}

void read_gemma4(ConfigFields& fields, const std::string& file, ModelConfig& config) {
  if (const auto act = fields.text("hidden_activation"); act.value_or("") != "gelu_pytorch_tanh") {
    fields.refuse(Code::unsupported, "hidden_activation",
                  fmt::format("\"{}\" is not supported; only \"gelu_pytorch_tanh\" is",
                              printable(act.value_or(""))));
  }
  if (fields.text("use_bidirectional_attention").value_or("vision") != "vision") {
    fields.refuse(Code::unsupported, "use_bidirectional_attention",
                  "other than \"vision\" is not supported");
  }
  config.activation = Activation::gelu_tanh;
  config.attention_scale = 1.0;
  config.embedding_scale = std::sqrt(config.hidden_size);
  if (fields.has("final_logit_softcapping")) {
    config.final_logit_softcap = fields.positive("final_logit_softcapping");
  }
  config.value_is_key = fields.flag("attention_k_eq_v", false);
  config.layer_table = equal_layers(config);
  read_layer_types(fields, config.layer_table);
  config.sliding_window = fields.count("sliding_window", {1, limits::kPositionsMax});
  read_gemma4_shapes(fields, config);
  share_gemma4_layers(fields, config);
  if (fields.flag("enable_moe_block", false)) {
    config.experts.count = fields.count("num_experts", {1, limits::kExpertsMax});
    config.experts.per_row = fields.count("top_k_experts", {1, limits::kExpertsMax});
    config.experts.intermediate_size =
        fields.count("moe_intermediate_size", {1, limits::kIntermediateMax});
    check_experts(fields, config, "top_k_experts");
    for (LayerConfig& layer : config.layer_table) layer.experts = true;
  }
  config.per_layer_input_size =
      fields.count("hidden_size_per_layer_input", {0, limits::kHiddenMax}, 0);
  if (config.per_layer_input_size != 0 &&
      fields.count("vocab_size_per_layer_input", {1, limits::kVocabMax}, config.vocab_size) !=
          config.vocab_size) {
    fields.refuse(Code::unsupported, "vocab_size_per_layer_input",
                  fmt::format("other than vocab_size {} is not supported", config.vocab_size));
  }
  config.rope = read_hf_rope(fields, file, "full_attention");
  config.sliding_rope = read_hf_rope(fields, file, "sliding_attention");
}

void read_gpt_oss(ConfigFields& fields, const std::string& file, ModelConfig& config) {
  static_cast<void>(file);
  config.activation = Activation::clamped_silu;
  config.activation_alpha = fields.positive("swiglu_alpha", 1.702);
  config.activation_limit = fields.positive("swiglu_limit", 7.0);
  config.attention_bias = fields.flag("attention_bias", true);
  config.experts.count = fields.count("num_local_experts", {1, limits::kExpertsMax});
  config.experts.per_row = fields.count("num_experts_per_tok", {1, limits::kExpertsMax});
  config.experts.intermediate_size = config.intermediate_size;
  check_experts(fields, config, "num_experts_per_tok");
  config.sliding_window = fields.count("sliding_window", {1, limits::kPositionsMax});
  config.layer_table = equal_layers(config);
  read_layer_types(fields, config.layer_table);
  for (LayerConfig& layer : config.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 0;
  }
}

// One kind for each layer, by layer_types or, without, by `interval`: every so many is attention.
void read_recurrent_types(ConfigFields& fields, std::string_view recurrent, LayerKind kind,
                          std::uint32_t interval, ModelConfig& config) {
  config.layer_table.clear();
  config.layer_table = equal_layers(config);
  const JsonView types = fields.json("layer_types");
  if (types && types.size() != config.layers) {
    return fields.refuse(Code::invalid_argument, "layer_types",
                         fmt::format("has {} entries for {} layers", types.size(), config.layers));
  }
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const bool attention =
        types ? types.at(i).text() != recurrent : interval != 0 && (i + 1) % interval == 0;
    if (!attention) config.layer_table[i].kind = kind;
  }
}

void read_qwen3_next(ConfigFields& fields, const std::string& file, ModelConfig& config) {
  const std::uint32_t dense = config.intermediate_size;
  if (fields.has("num_experts") && fields.json("num_experts").whole() != 0) {
    read_qwen3_moe(fields, file, config);
    // Files of Qwen3.5 do not say it: it always does.
    config.experts.normalise = fields.flag("norm_topk_prob", true);
    config.intermediate_size =
        fields.count("shared_expert_intermediate_size", {1, limits::kIntermediateMax});
  }
  const std::vector<LayerConfig> mlps = config.layer_table;
  read_recurrent_types(fields, "linear_attention", LayerKind::delta_rule,
                       fields.count("full_attention_interval", {1, limits::kLayersMax}, 4), config);
  for (std::size_t i = 0; i < mlps.size(); ++i) {
    config.layer_table[i].experts = mlps[i].experts;
    if (!mlps[i].experts) config.layer_table[i].intermediate_size = dense;
  }
  config.recurrent = {
      .kernel = fields.count("linear_conv_kernel_dim", {2, limits::kHeadsMax}),
      .key_heads = fields.count("linear_num_key_heads", {1, limits::kHeadsMax}),
      .value_heads = fields.count("linear_num_value_heads", {1, limits::kHeadsMax}),
      .key_dim = fields.count("linear_key_head_dim", {1, limits::kHeadDimMax}),
      .value_dim = fields.count("linear_value_head_dim", {1, limits::kHeadDimMax}),
  };
  config.gain_from_one = true;
  config.attention_gate = true;
  if (!fields.flag("attn_output_gate", true)) {
    fields.refuse(Code::unsupported, "attn_output_gate", "false is not supported");
  }
  const std::string gate = fields.text("output_gate_type").value_or("swish");
  if (gate != "swish" && gate != "silu") {
    fields.refuse(Code::unsupported, "output_gate_type",
                  fmt::format("\"{}\" is not supported; only \"swish\" is", printable(gate)));
  }
}

// The size of the MLPs as older files give it: before a part of it is taken and it is rounded up.
std::uint32_t lfm2_intermediate(ConfigFields& fields, std::uint32_t size) {
  size = fields.count("block_ff_dim", {1, limits::kIntermediateMax}, size);
  if (!fields.flag("block_auto_adjust_ff_dim", false)) return size;
  size = 2 * size / 3;
  const double factor = fields.positive("block_ffn_dim_multiplier", 1.0);
  size = static_cast<std::uint32_t>(std::min<double>(factor * size, limits::kIntermediateMax));
  const std::uint32_t unit = fields.count("block_multiple_of", {1, limits::kIntermediateMax}, 256);
  return (size + unit - 1) / unit * unit;
}

void read_lfm2(ConfigFields& fields, const std::string& file, ModelConfig& config) {
  static_cast<void>(file);
  config.rms_eps = fields.positive("norm_eps", 1e-5);
  config.tied_head = fields.flag("tie_word_embeddings", fields.flag("tie_embedding", true));
  config.intermediate_size = lfm2_intermediate(fields, config.intermediate_size);
  if (fields.flag("conv_bias", false)) {
    fields.refuse(Code::unsupported, "conv_bias", "true is not supported");
  }
  read_recurrent_types(fields, "conv", LayerKind::convolution, 0, config);
  if (!fields.json("layer_types")) {
    for (const std::int64_t i : fields.wholes("full_attn_idxs", limits::kLayersMax)
                                    .value_or(std::vector<std::int64_t>{})) {
      if (i < 0 || i >= config.layers) {
        fields.refuse(Code::invalid_argument, "full_attn_idxs",
                      fmt::format("names layer {} of {}", i, config.layers));
        break;
      }
      config.layer_table[static_cast<std::size_t>(i)].kind = LayerKind::full_attention;
    }
  }
  config.recurrent = {.kernel = fields.count("conv_L_cache", {2, limits::kHeadsMax})};
}

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama", .family = "llama"},
    {.model_type = "qwen2", .family = "qwen2"},
    {.model_type = "qwen3", .family = "qwen3"},
    {.model_type = "qwen3_moe", .family = "qwen3_moe", .read = read_qwen3_moe},
    {.model_type = "gemma4_text",
     .family = "gemma4",
     .sliding_layers = true,
     .silu = false,
     .one_rope = false,
     .read = read_gemma4},
    {.model_type = "qwen3_next",
     .family = "qwen3_next",
     .recurrent = "linear_attention",
     .partial_rope = true,
     .read = read_qwen3_next},
    {.model_type = "qwen3_5_text",
     .family = "qwen3_5",
     .recurrent = "linear_attention",
     .partial_rope = true,
     .read = read_qwen3_next},
    {.model_type = "qwen3_5_moe_text",
     .family = "qwen3_5",
     .recurrent = "linear_attention",
     .partial_rope = true,
     .needs_mlp = false,
     .read = read_qwen3_next},
    {.model_type = "lfm2",
     .family = "lfm2",
     .recurrent = "conv",
     .needs_mlp = false,
     .read = read_lfm2},
    {.model_type = "gpt_oss", .family = "gpt_oss", .sliding_layers = true, .read = read_gpt_oss},
};

}  // namespace

const HfFamily* find_hf_family(std::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string known_model_types() {
  std::string names;
  for (const HfFamily& family : kFamilies) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.model_type);
  }
  return names;
}

}  // namespace drafthouse
