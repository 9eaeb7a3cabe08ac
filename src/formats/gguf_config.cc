#include "formats/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "formats/config_fields.h"
#include "formats/draft_checks.h"
#include "formats/gguf_families.h"
#include "formats/gguf_token_id.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/stop_tokens.h"

namespace drafthouse {
namespace {

constexpr std::string_view kDraftArchitecture = "dflash";

std::string architecture_of(const GgufMetadata& metadata) {
  return metadata.text("general.architecture").value_or("");
}

// The fields that a target and a draft share.
template <class Config>
void read_shape(ConfigFields& fields, const GgufFamily& family, Config& config) {
  config.hidden_size = fields.count("embedding_length", {1, limits::kHiddenMax});
  config.layers = fields.count("block_count", {1, limits::kLayersMax});
  config.heads = fields.count("attention.head_count", {1, limits::kHeadsMax});
  const auto no_mlp = family.needs_mlp ? std::nullopt : std::optional<std::uint32_t>(1);
  const CountRange sizes{1, limits::kIntermediateMax};
  if (family.by_layer) {
    const auto kv_heads = fields.counts("attention.head_count_kv", {0, limits::kHeadsMax},
                                        config.layers, config.heads);
    const auto first =
        std::find_if(kv_heads.begin(), kv_heads.end(), [](auto n) { return n != 0; });
    config.kv_heads = first == kv_heads.end() ? 1 : *first;
    config.intermediate_size =
        fields.counts("feed_forward_length", sizes, config.layers, no_mlp).front();
  } else {
    config.kv_heads = fields.count("attention.head_count_kv", {1, limits::kHeadsMax}, config.heads);
    config.intermediate_size = fields.count("feed_forward_length", sizes, no_mlp);
  }
  config.max_positions = fields.count("context_length", {1, limits::kPositionsMax});
  config.rms_eps = fields.positive("attention.layer_norm_rms_epsilon");
  if (!fields.has("attention.key_length") && config.hidden_size % config.heads != 0) {
    fields.refuse(Code::invalid_argument, "attention.key_length", "is missing");
  }
  const std::uint32_t share = config.hidden_size / config.heads;
  config.head_dim = fields.count("attention.key_length", {2, limits::kHeadDimMax}, share);
  if (config.head_dim < 2 || config.head_dim > limits::kHeadDimMax || config.head_dim % 2 != 0) {
    fields.refuse(Code::invalid_argument, "attention.key_length",
                  fmt::format("gives heads of {} values; they must be even and 2 to {}",
                              config.head_dim, limits::kHeadDimMax));
  }
  const CountRange dims{1, limits::kHiddenMax};
  if (fields.count("attention.value_length", dims, config.head_dim) != config.head_dim) {
    fields.refuse(Code::unsupported, "attention.value_length", "differs from the key length");
  }
  if (!family.partial_rope &&
      fields.count("rope.dimension_count", dims, config.head_dim) != config.head_dim) {
    fields.refuse(Code::unsupported, "rope.dimension_count",
                  fmt::format("is not the head's size ({})", config.head_dim));
  }
  if (config.heads % config.kv_heads != 0) {
    fields.refuse(
        Code::invalid_argument, "attention.head_count_kv",
        fmt::format("is {}, which does not divide the {} heads", config.kv_heads, config.heads));
  }
}

// Leading values of a head that turn; 0: all.
std::uint32_t read_rotary_dim(ConfigFields& fields, std::uint32_t head_dim) {
  constexpr std::string_view kKey = "rope.dimension_count";
  const std::uint32_t turned = fields.count(kKey, {2, limits::kHeadDimMax}, head_dim);
  if (turned > head_dim || turned % 2 != 0) {
    fields.refuse(Code::invalid_argument, kKey,
                  fmt::format("is {}, which is no even part of a head of {}", turned, head_dim));
  }
  return turned == head_dim ? 0 : turned;
}

// Blocks at the end that propose ids and are no part of the model.
void drop_proposing_layers(ConfigFields& fields, ModelConfig& config) {
  constexpr std::string_view kKey = "nextn_predict_layers";
  const std::uint32_t extra = fields.count(kKey, {0, limits::kLayersMax}, 0);
  if (extra < config.layers) {
    config.layers -= extra;
  } else {
    fields.refuse(Code::invalid_argument, kKey,
                  fmt::format("is {} of {} blocks", extra, config.layers));
  }
}

RopeConfig read_rope(ConfigFields& fields) {
  RopeConfig rope;
  rope.theta = fields.positive("rope.freq_base", 10000.0);
  const std::string type = fields.text("rope.scaling.type").value_or("none");
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = fields.positive("rope.scaling.factor");
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.factor = fields.positive("rope.scaling.factor");
    rope.original_max_positions = fields.positive("rope.scaling.original_context_length");
    rope.beta_fast = fields.positive("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = fields.positive("rope.scaling.yarn_beta_slow", 1.0);
    for (const std::string_view key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                                       "rope.scaling.yarn_ext_factor"}) {
      if (fields.positive(key, 1.0) != 1.0) {
        fields.refuse(Code::unsupported, key, "other than 1 is not supported");
      }
    }
  } else if (type != "none") {
    fields.refuse(
        Code::unsupported, "rope.scaling.type",
        fmt::format("\"{}\" is not supported; none, linear and yarn are", printable(type)));
  }
  if (fields.has("rope.scale_linear") && fields.positive("rope.scale_linear") != 1.0) {
    fields.refuse(Code::unsupported, "rope.scale_linear",
                  "is not supported; convert the file again");
  }
  return rope;
}

void refuse_what_is_not_built(ConfigFields& fields, const GgufFamily& family) {
  for (const std::string_view key : {"expert_count", "attention.sliding_window"}) {
    if (family.own(key)) continue;
    if (fields.count(key, {0, limits::kPositionsMax}, 0) != 0) {
      fields.refuse(Code::unsupported, key, "is not supported");
    }
  }
  if (!fields.flag("attention.causal", true)) {
    fields.refuse(Code::unsupported, "attention.causal", "false is not supported for a target");
  }
  for (const std::string_view key :
       {"logit_scale", "residual_scale", "embedding_scale", "attention.scale",
        "final_logit_softcapping", "attn_logit_softcapping"}) {
    if (fields.has(key) && !family.own(key)) {
      fields.refuse(Code::unsupported, key, "is not supported for a target");
    }
  }
}

Status add_stop_ids(const GgufModel& model, std::uint32_t vocab_size,
                    std::vector<std::uint32_t>& ids) {
  const GgufMetadata& metadata = model.metadata;
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    const auto id = gguf_token_id(model.path, metadata, key, vocab_size);
    if (!id.ok()) return id.status();
    if (id.value()) ids.push_back(*id.value());
  }
  ConfigFields fields(model.path, metadata, "tokenizer.ggml.");
  constexpr std::string_view kMore = "eos_token_ids";
  for (const std::int64_t id :
       fields.wholes(kMore, limits::kStopIdsMax).value_or(std::vector<std::int64_t>())) {
    if (id < 0 || id >= vocab_size) {
      fields.refuse(Code::corrupt, kMore,
                    fmt::format("holds {}, which is not one of the {} tokens", id, vocab_size));
    }
    ids.push_back(static_cast<std::uint32_t>(id));
  }
  const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
  for (std::size_t i = 0; tokens != nullptr && i < tokens->size() && i < vocab_size; ++i) {
    if (ends_generation((*tokens)[i])) ids.push_back(static_cast<std::uint32_t>(i));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return fields.status();
}

// dflash.target_layers counts the embedding as 0, so a layer's output is its number + 1.
void read_taps(ConfigFields& fields, DraftConfig& config) {
  constexpr std::string_view kKey = "target_layers";
  if (!fields.has(kKey)) {
    return fields.refuse(Code::invalid_argument, kKey,
                         "is missing; which layers of the target feed the draft is never guessed");
  }
  for (const std::int64_t id :
       fields.wholes(kKey, limits::kTapsMax).value_or(std::vector<std::int64_t>())) {
    if (id < 1 || id > limits::kLayersMax) {
      fields.refuse(Code::invalid_argument, kKey,
                    fmt::format("holds {}, which is no layer's output", id));
    }
    config.target_layer_ids.push_back(static_cast<std::uint32_t>(id - 1));
  }
}

void read_windows(ConfigFields& fields, DraftConfig& config) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  config.layer_types.assign(config.layers, LayerAttention::full);
  const auto window = fields.count("attention.sliding_window", {0, limits::kPositionsMax}, 0);
  if (!fields.has(kPattern)) {
    if (window != 0) {
      fields.refuse(Code::invalid_argument, kPattern,
                    "is missing, but attention.sliding_window is there");
    }
    return;
  }
  const auto pattern =
      fields.wholes(kPattern, limits::kLayersMax).value_or(std::vector<std::int64_t>());
  if (pattern.size() != config.layers) {
    return fields.refuse(
        Code::invalid_argument, kPattern,
        fmt::format("must have one entry for each of the {} layers", config.layers));
  }
  bool sliding = false;
  for (std::size_t l = 0; l < pattern.size(); ++l) {
    if (pattern[l] == 0) continue;
    config.layer_types[l] = LayerAttention::sliding;
    sliding = true;
  }
  if (!sliding) return;
  if (window == 0) {
    fields.refuse(Code::invalid_argument, "attention.sliding_window", "is missing");
  }
  config.sliding_window = window;
}

void refuse_other_drafts(ConfigFields& fields) {
  for (const std::string_view key : {"sample_from_anchor", "has_confidence_head"}) {
    if (fields.flag(key, false)) fields.refuse(Code::unsupported, key, "true is not supported");
  }
  for (const std::string_view key : {"decoder_arch", "markov_rank"}) {
    if (fields.has(key)) fields.refuse(Code::unsupported, key, "is not supported");
  }
}

// Of DFlash2, which has no architecture name of its own in GGUF.
void read_dflash2(ConfigFields& fields, DraftConfig& config) {
  config.architecture = "DFlashDraftModel";
  if (!fields.has("selector_top_k") && !fields.has("conv_kernel_size")) return;
  config.architecture = "DFlash2DraftModel";
  config.dflash2 = {
      .conv_kernel = fields.count("conv_kernel_size", {1, limits::kConvKernelMax}),
      .conv_group = fields.count("conv_group_size", {1, limits::kHiddenMax}),
      .selector_rank = fields.count("selector_rank", {1, limits::kHiddenMax}),
      .selector_top_k = fields.count("selector_top_k", {1, limits::kSelectorMax}),
  };
}

void read_mask_and_vocab(const GgufModel& model, ConfigFields& fields, DraftConfig& config) {
  ConfigFields tokenizer(model.path, model.metadata, "tokenizer.ggml.");
  if (fields.has("vocab_size")) {
    config.vocab_size = fields.count("vocab_size", {1, limits::kVocabMax});
  } else if (const auto* tokens = model.metadata.texts("tokenizer.ggml.tokens");
             tokens != nullptr && !tokens->empty() && tokens->size() <= limits::kVocabMax) {
    config.vocab_size = static_cast<std::uint32_t>(tokens->size());
  } else {
    fields.refuse(Code::invalid_argument, "vocab_size", "is missing");
  }
  ConfigFields& source = fields.has("mask_token_id") ? fields : tokenizer;
  if (!source.has("mask_token_id")) {
    fields.refuse(Code::invalid_argument, "mask_token_id", "is missing; it is never guessed");
  }
  config.mask_id = source.count("mask_token_id", {0, limits::kVocabMax}, 0);
  if (!tokenizer.status().ok() && fields.status().ok()) {
    fields.refuse(Code::invalid_argument, "mask_token_id", "is not a token id");
  }
}

}  // namespace

const TensorInfo* GgufModel::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return at == tensors.end() || at->name != name ? nullptr : &*at;
}

bool is_draft_gguf(const GgufMetadata& metadata) {
  return architecture_of(metadata) == kDraftArchitecture;
}

Result<ModelConfig> model_config_from_gguf(const GgufModel& model) {
  ModelConfig config;
  const std::string architecture = architecture_of(model.metadata);
  const GgufFamily* family = find_gguf_family(architecture);
  if (family == nullptr) {
    return Status(Code::unsupported,
                  fmt::format("{}: general.architecture \"{}\" is not supported; known: {}",
                              model.path, printable(architecture), known_gguf_architectures()));
  }
  config.family = family->family;
  ConfigFields fields(model.path, model.metadata, architecture + ".");
  read_shape(fields, *family, config);
  drop_proposing_layers(fields, config);
  config.rope = read_rope(fields);
  if (family->partial_rope) config.rope.rotary_dim = read_rotary_dim(fields, config.head_dim);
  refuse_what_is_not_built(fields, *family);
  if (family->read != nullptr && fields.status().ok()) family->read(fields, model, config);
  if (!fields.status().ok()) return fields.status();

  const TensorInfo* embedding = model.find("model.embed_tokens.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 ||
      embedding->shape[0] > limits::kVocabMax) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: tensor 'token_embd.weight' is missing or no table", model.path));
  }
  config.vocab_size = static_cast<std::uint32_t>(embedding->shape[0]);
  const auto* tokens = model.metadata.texts("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->size() > config.vocab_size) {
    return Status(Code::corrupt,
                  fmt::format("{}: the vocabulary has {} tokens, the embedding {} rows", model.path,
                              tokens->size(), config.vocab_size));
  }
  config.tied_head = model.find("lm_head.weight") == nullptr;
  config.attention_bias = model.find("model.layers.0.self_attn.q_proj.bias") != nullptr;
  config.mlp_bias = model.find("model.layers.0.mlp.gate_proj.bias") != nullptr;
  config.interleaved_rope_rows = config.family == "llama";
  if (auto stops = add_stop_ids(model, config.vocab_size, config.eos_ids); !stops.ok())
    return stops;
  return config;
}

Result<DraftConfig> draft_config_from_gguf(const GgufModel& model) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : model.tensors) names.push_back(tensor.name);
  auto kind = read_draft_tensors(model.path, names);
  if (!kind.ok()) return kind.status();
  ConfigFields fields(model.path, model.metadata, std::string(kDraftArchitecture) + ".");
  DraftConfig config;
  refuse_other_drafts(fields);
  read_dflash2(fields, config);
  read_shape(fields, GgufFamily{}, config);
  config.rope = read_rope(fields);
  config.attention_bias = model.find("layers.0.self_attn.q_proj.bias") != nullptr;
  config.block_size = fields.count("block_size", {2, limits::kBlockMax}, 16);
  read_mask_and_vocab(model, fields, config);
  read_taps(fields, config);
  if (fields.has("target_block_count")) {
    config.num_target_layers = fields.count("target_block_count", {1, limits::kLayersMax});
  }
  read_windows(fields, config);
  config.is_causal = fields.maybe_flag("attention.causal");
  config.input_embedding_scale = fields.maybe_positive("embedding_scale");
  config.output_multiplier = fields.positive("logit_scale", 1.0);
  config.final_logit_softcapping = fields.maybe_positive("final_logit_softcapping").value_or(0.0);
  if (const TensorInfo* ids = model.find("d2t"); ids != nullptr && !ids->shape.empty()) {
    config.draft_vocab_size =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(ids->shape[0], limits::kVocabMax));
    config.id_map_is_absolute = true;
  }
  if (!fields.status().ok()) return fields.status();
  if (auto checked = check_draft(model.path, config); !checked.ok()) return checked;
  const std::string_view said = config.is_dflash2() ? "dflash.conv_kernel_size is there"
                                                    : "dflash.conv_kernel_size is missing";
  if (auto settled = settle_draft_kind(model.path, kind.value(), said, config); !settled.ok()) {
    return settled;
  }
  return config;
}

Result<std::vector<float>> read_rope_divisors(const ByteSource& source, const TensorInfo& tensor,
                                              std::uint32_t head_dim) {
  // What converters write for a pair that does not turn, 1e30, and all that would leave it as
  // still.
  constexpr float kStill = 1e29f;
  const std::string where =
      fmt::format("{}: tensor '{}'", source.name(), printable(tensor.file_name));
  if (tensor.dtype != Dtype::f32 || tensor.shape.size() != 1 || tensor.shape[0] != head_dim / 2) {
    return Status(Code::invalid_argument,
                  fmt::format("{} must be f32 with {} values", where, head_dim / 2));
  }
  std::vector<float> divisors(head_dim / 2);
  auto read = source.read(tensor.offset, std::as_writable_bytes(std::span(divisors)));
  if (!read.ok()) return read;
  const auto usable = [](float d) { return std::isfinite(d) && d > 0; };
  if (!std::all_of(divisors.begin(), divisors.end(), usable)) {
    return Status(Code::corrupt, fmt::format("{} holds a value that is not above 0", where));
  }
  for (float& divisor : divisors) {
    if (divisor >= kStill) divisor = std::numeric_limits<float>::infinity();
  }
  return divisors;
}

}  // namespace drafthouse
