#include "formats/gguf_families.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "formats/limits.h"
#include "formats/shared_layers.h"

namespace drafthouse {
namespace {

std::string layer_tensor(std::size_t layer, std::string_view part) {
  return fmt::format("model.layers.{}.{}", layer, part);
}

void read_expert_counts(ConfigFields& fields, ModelConfig& config) {
  config.experts.count = fields.count("expert_count", {1, limits::kExpertsMax});
  config.experts.per_row = fields.count("expert_used_count", {1, limits::kExpertsMax});
  config.experts.intermediate_size = fields.count(
      "expert_feed_forward_length", {1, limits::kIntermediateMax}, config.intermediate_size);
  if (config.experts.per_row > config.experts.count) {
    fields.refuse(Code::invalid_argument, "expert_used_count",
                  fmt::format("is {}, but there are {} experts", config.experts.per_row,
                              config.experts.count));
  }
}

// The experts of a family whose layers all have them and no dense MLP.
void read_experts(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  static_cast<void>(model);
  read_expert_counts(fields, config);
  config.layer_table.assign(config.layers, config.layer(0));
  for (LayerConfig& layer : config.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 0;
  }
}

// Every other layer is a sliding one, beginning with the first; the file does not say so.
void read_gpt_oss(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  read_experts(fields, model, config);
  config.activation = Activation::clamped_silu;
  config.rope.truncate = false;
  config.sliding_window = fields.count("attention.sliding_window", {1, limits::kPositionsMax});
  for (std::size_t i = 0; i < config.layer_table.size(); i += 2) {
    config.layer_table[i].kind = LayerKind::sliding_attention;
  }
}

// One entry for each layer: not 0 where `key` says so. Empty when the key is not there.
std::vector<std::int64_t> layer_flags(ConfigFields& fields, std::string_view key,
                                      std::uint32_t layers) {
  if (!fields.has(key)) return {};
  auto flags = fields.wholes(key, limits::kLayersMax).value_or(std::vector<std::int64_t>());
  // Layers behind the last, which propose ids, have entries too.
  if (flags.size() < layers) {
    fields.refuse(Code::invalid_argument, key,
                  fmt::format("has {} entries for {} layers", flags.size(), layers));
    flags.resize(layers);
  }
  return flags;
}

// Layers of both kinds, whose heads and MLPs may be of other sizes.
void read_gemma4_layers(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  const std::uint32_t full_dim = config.head_dim;
  const CountRange dims{2, limits::kHeadDimMax};
  config.head_dim = fields.count("attention.key_length_swa", dims, full_dim);
  for (const std::string_view key : {"attention.value_length_swa", "rope.dimension_count_swa"}) {
    if (fields.count(key, dims, config.head_dim) != config.head_dim) {
      fields.refuse(
          Code::unsupported, key,
          fmt::format("differs from the key length of sliding layers ({})", config.head_dim));
    }
  }
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const auto sliding = layer_flags(fields, kPattern, config.layers);
  if (sliding.empty()) fields.refuse(Code::invalid_argument, kPattern, "is missing");
  const auto kv_heads =
      fields.counts("attention.head_count_kv", {1, limits::kHeadsMax}, config.layers, config.heads);
  const auto sizes =
      fields.counts("feed_forward_length", {1, limits::kIntermediateMax}, config.layers);
  if (!fields.status().ok()) return;
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const bool slides = sliding[i] != 0;
    config.layer_table.push_back(
        {.kind = slides ? LayerKind::sliding_attention : LayerKind::full_attention,
         .heads = config.heads,
         .kv_heads = kv_heads[i],
         .head_dim = slides ? config.head_dim : full_dim,
         .intermediate_size = sizes[i]});
  }
  const std::uint32_t shared =
      fields.count("attention.shared_kv_layers", {0, config.layers - 1}, 0);
  if (const auto alone = share_last_layers(config.layer_table, shared)) {
    fields.refuse(Code::invalid_argument, "attention.shared_kv_layers",
                  fmt::format("is {}, but no layer before the last {} is of the kind of layer {}",
                              shared, shared, *alone));
  }
  // Full layers without a value projection take the keys' for it; the file only lacks the tensor.
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const LayerConfig& layer = config.layer_table[i];
    if (layer.kind != LayerKind::full_attention || layer.kv_source) continue;
    config.value_is_key = model.find(layer_tensor(i, "self_attn.v_proj.weight")) == nullptr;
    break;
  }
}

void read_gemma4(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  config.activation = Activation::gelu_tanh;
  config.attention_scale = 1.0;
  config.embedding_scale = std::sqrt(config.hidden_size);
  config.final_logit_softcap = fields.maybe_positive("final_logit_softcapping").value_or(0.0);
  config.sliding_window = fields.count("attention.sliding_window", {1, limits::kPositionsMax});
  read_gemma4_layers(fields, model, config);
  if (fields.has("expert_count") && fields.count("expert_count", {0, limits::kExpertsMax}) != 0) {
    read_expert_counts(fields, config);
    for (LayerConfig& layer : config.layer_table) layer.experts = true;
  }
  config.per_layer_input_size =
      fields.count("embedding_length_per_layer_input", {0, limits::kHiddenMax}, 0);
  config.sliding_rope.emplace().theta = fields.positive("rope.freq_base_swa", 10000.0);
  // How far the heads of full layers turn is a tensor, and nowhere else in such files.
  const auto& table = config.layer_table;
  const bool full = std::any_of(table.begin(), table.end(), [](const LayerConfig& layer) {
    return layer.kind == LayerKind::full_attention;
  });
  if (full && model.find("rope_freqs.weight") == nullptr) {
    fields.refuse(Code::invalid_argument, "rope.dimension_count",
                  "needs the tensor 'rope_freqs.weight', which is missing; convert the file again");
  }
}

void read_qwen3_next(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  static_cast<void>(model);
  const bool experts =
      fields.has("expert_count") && fields.count("expert_count", {0, limits::kExpertsMax}) != 0;
  if (experts) {
    read_expert_counts(fields, config);
    config.intermediate_size =
        fields.count("expert_shared_feed_forward_length", {1, limits::kIntermediateMax},
                     config.experts.intermediate_size);
  }
  const std::uint32_t interval =
      fields.count("full_attention_interval", {1, limits::kLayersMax}, 4);
  const auto recurrent = layer_flags(fields, "attention.recurrent_layers", config.layers);
  config.layer_table.assign(config.layers, config.layer(0));
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    LayerConfig& layer = config.layer_table[i];
    layer.experts = experts;
    const bool delta = recurrent.empty() ? (i + 1) % interval != 0 : recurrent[i] != 0;
    if (delta) layer.kind = LayerKind::delta_rule;
  }
  const CountRange heads{1, limits::kHeadsMax};
  config.recurrent = {
      .kernel = fields.count("ssm.conv_kernel", {2, limits::kHeadsMax}),
      .key_heads = fields.count("ssm.group_count", heads),
      .value_heads = fields.count("ssm.time_step_rank", heads),
      .key_dim = fields.count("ssm.state_size", {1, limits::kHeadDimMax}),
  };
  const std::uint32_t inner = fields.count("ssm.inner_size", {1, limits::kIntermediateMax});
  if (inner % config.recurrent.value_heads != 0 ||
      inner / config.recurrent.value_heads > limits::kHeadDimMax) {
    fields.refuse(Code::invalid_argument, "ssm.inner_size",
                  fmt::format("is {}, which {} value heads do not explain", inner,
                              config.recurrent.value_heads));
  }
  config.recurrent.value_dim = inner / config.recurrent.value_heads;
  config.attention_gate = true;
}

void read_qwen3_5(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  read_qwen3_next(fields, model, config);
  config.tiled_value_heads = true;
}

void read_lfm2(ConfigFields& fields, const GgufModel& model, ModelConfig& config) {
  static_cast<void>(model);
  // Layers without keys are the convolutions.
  const auto kv_heads =
      fields.counts("attention.head_count_kv", {0, limits::kHeadsMax}, config.layers, config.heads);
  config.layer_table.assign(config.layers, config.layer(0));
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    if (kv_heads[i] == 0) config.layer_table[i].kind = LayerKind::convolution;
    if (kv_heads[i] == 0 || kv_heads[i] == config.kv_heads) continue;
    fields.refuse(
        Code::unsupported, "attention.head_count_kv",
        fmt::format("gives layer {} {} heads and others {}", i, kv_heads[i], config.kv_heads));
  }
  config.recurrent = {.kernel = fields.count("shortconv.l_cache", {2, limits::kHeadsMax})};
}

constexpr GgufFamily kFamilies[] = {
    {.architecture = "llama", .family = "llama"},
    {.architecture = "qwen2", .family = "qwen2"},
    {.architecture = "qwen3", .family = "qwen3"},
    {.architecture = "qwen3moe",
     .family = "qwen3_moe",
     .read = read_experts,
     .own_keys = {"expert_count"}},
    {.architecture = "gpt-oss",
     .family = "gpt_oss",
     .read = read_gpt_oss,
     .own_keys = {"expert_count", "attention.sliding_window"}},
    {.architecture = "gemma4",
     .family = "gemma4",
     .read = read_gemma4,
     .own_keys = {"expert_count", "attention.sliding_window", "final_logit_softcapping"},
     .by_layer = true},
    {.architecture = "qwen3next",
     .family = "qwen3_next",
     .read = read_qwen3_next,
     .own_keys = {"expert_count"},
     .partial_rope = true,
     .needs_mlp = false},
    {.architecture = "qwen35", .family = "qwen3_5", .read = read_qwen3_5, .partial_rope = true},
    {.architecture = "qwen35moe",
     .family = "qwen3_5",
     .read = read_qwen3_5,
     .own_keys = {"expert_count"},
     .partial_rope = true,
     .needs_mlp = false},
    {.architecture = "lfm2", .family = "lfm2", .read = read_lfm2, .by_layer = true},
};

}  // namespace

bool GgufFamily::own(std::string_view key) const {
  return std::find(own_keys.begin(), own_keys.end(), key) != own_keys.end();
}

const GgufFamily* find_gguf_family(std::string_view architecture) {
  for (const GgufFamily& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string known_gguf_architectures() {
  std::string known;
  for (const GgufFamily& each : kFamilies) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", each.architecture);
  }
  return known;
}

}  // namespace drafthouse
