#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "formats/draft_checks.h"
#include "formats/hf_config.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/quantisation.h"

namespace drafthouse {
namespace {

constexpr std::string_view kArchitecture = "DFlashDraftModel";
constexpr std::string_view kArchitecture2 = "DFlash2DraftModel";
// The class that the speculators library writes by default.
constexpr std::string_view kSpeculator = "DFlashSpeculator";

struct Refusal {
  std::string_view key;
  std::string_view why;
};

// Fields that only another kind of draft has. Loaded as v1 such a draft would propose nonsense, or
// be off by one, without any error.
constexpr std::array kOtherKinds = {
    Refusal{"markov_rank", "is there: DSpark and DeepSpec drafts (anchor-first) are not supported"},
    Refusal{"attention_value_scale", "is not supported"},
    Refusal{"partial_rotary_factor", "is not supported"},
    Refusal{"conv_causal", "is there: this DFlash2 layout of speculators is not supported"},
};

constexpr std::array kOtherFlags = {
    Refusal{"sample_from_anchor", "true: anchor-first drafts are not supported"},
    Refusal{"use_swa", "true is not supported; use layer_types"},
    Refusal{"attention_sink_bias", "true is not supported"},
    Refusal{"has_confidence_head", "true: DSpark drafts (anchor-first) are not supported"},
    Refusal{"enable_confidence_head", "true: DSpark drafts (anchor-first) are not supported"},
};

std::string first_architecture(const JsonView root) {
  return root["architectures"].at(0).text().value_or("");
}

bool is_speculators(const JsonView root) {
  return static_cast<bool>(root["speculators_model_type"]) ||
         static_cast<bool>(root["transformer_layer_config"]);
}

void refuse_other_kinds(ConfigFields& fields, const JsonView root) {
  const std::string architecture = first_architecture(root);
  const bool speculators = is_speculators(root);
  if (!architecture.empty() && architecture != kArchitecture && architecture != kArchitecture2 &&
      !(speculators && architecture == kSpeculator)) {
    fields.refuse(Code::unsupported, "architectures",
                  fmt::format("\"{}\" is not supported as a draft; \"{}\" and \"{}\" are",
                              printable(architecture), kArchitecture, kArchitecture2));
  }
  if (speculators) {
    const std::string type = root["speculators_model_type"].text().value_or("");
    if (type != "dflash") {
      fields.refuse(Code::unsupported, "speculators_model_type",
                    fmt::format("\"{}\" is not supported; \"dflash\" is", printable(type)));
    }
    if (!root["transformer_layer_config"].is_object()) {
      fields.refuse(Code::invalid_argument, "transformer_layer_config", "is missing");
    }
    if (architecture == kArchitecture2) {
      fields.refuse(Code::unsupported, "architectures",
                    "DFlash2 in the speculators layout is not supported; use z-lab's");
    }
  }
  for (const Refusal& other : kOtherKinds) {
    if (fields.has(other.key)) fields.refuse(Code::unsupported, other.key, other.why);
  }
  for (const Refusal& other : kOtherFlags) {
    const auto set = fields.json(other.key).flag();
    if (set.value_or(fields.has(other.key))) {
      fields.refuse(Code::unsupported, other.key, other.why);
    }
  }
  const auto act = fields.text("hidden_act");
  if (act && *act != "silu") {
    fields.refuse(Code::unsupported, "hidden_act",
                  fmt::format("\"{}\" is not supported; only \"silu\" is", printable(*act)));
  }
}

void read_dflash2(ConfigFields& fields, DraftConfig& config) {
  if (config.architecture != kArchitecture2) {
    for (const std::string_view key : {"selector_rank", "conv_kernel_size"}) {
      if (!fields.has(key)) continue;
      fields.refuse(Code::mismatch, key,
                    fmt::format("is there, as in a DFlash2 draft, but architectures says \"{}\"",
                                printable(config.architecture)));
    }
    return;
  }
  config.dflash2 = {
      .conv_kernel = fields.count("conv_kernel_size", {1, limits::kConvKernelMax}),
      .conv_group = fields.count("conv_group_size", {1, limits::kHiddenMax}),
      .selector_rank = fields.count("selector_rank", {1, limits::kHiddenMax}),
      .selector_top_k = fields.count("selector_top_k", {1, limits::kSelectorMax}),
  };
}

void read_layer_types(ConfigFields& fields, DraftConfig& config) {
  constexpr std::string_view kKey = "layer_types";
  const JsonView types = fields.json(kKey);
  const bool sliding_on = fields.flag("use_sliding_window", static_cast<bool>(types));
  if (types) {
    if (!types.is_array() || types.size() != config.layers) {
      fields.refuse(Code::invalid_argument, kKey,
                    fmt::format("must have one entry for each of the {} layers", config.layers));
    }
    for (std::size_t i = 0; i < types.size(); ++i) {
      const std::string type = types.at(i).text().value_or("?");
      if (type != "full_attention" && type != "sliding_attention") {
        fields.refuse(Code::unsupported, kKey,
                      fmt::format("entry \"{}\" is not supported", printable(type)));
      }
      config.layer_types.push_back(type == "sliding_attention" ? LayerAttention::sliding
                                                               : LayerAttention::full);
    }
  } else {
    // What transformers' Qwen3 configuration derives when the list is absent.
    const std::uint32_t first =
        sliding_on ? fields.count("max_window_layers", {0, limits::kPositionsMax}, 28)
                   : config.layers;
    for (std::uint32_t l = 0; l < config.layers; ++l) {
      config.layer_types.push_back(l >= first ? LayerAttention::sliding : LayerAttention::full);
    }
  }
  if (std::find(config.layer_types.begin(), config.layer_types.end(), LayerAttention::sliding) ==
      config.layer_types.end()) {
    return;
  }
  if (!sliding_on) {
    fields.refuse(Code::invalid_argument, "use_sliding_window",
                  "is false, but layer_types has sliding layers");
  }
  config.sliding_window = fields.count("sliding_window", {1, limits::kPositionsMax});
}

// speculators counts the embedding as 0, so a layer's output is its number + 1.
void read_taps(ConfigFields& fields, bool speculators, DraftConfig& config) {
  const std::string_view kKey = speculators ? "aux_hidden_state_layer_ids" : "target_layer_ids";
  const std::int64_t first = speculators ? 1 : 0;
  if (!fields.has(kKey)) {
    return fields.refuse(Code::invalid_argument, kKey,
                         "is missing; which layers of the target feed the draft is never guessed");
  }
  for (const std::int64_t id :
       fields.wholes(kKey, limits::kTapsMax).value_or(std::vector<std::int64_t>())) {
    if (id < first || id - first >= limits::kLayersMax) {
      fields.refuse(Code::invalid_argument, kKey,
                    fmt::format("holds {}, which is no layer{}", id, first > 0 ? "'s output" : ""));
    }
    config.target_layer_ids.push_back(static_cast<std::uint32_t>(id - first));
  }
}

// An explicit word on the mask inside a block, for all layers.
std::optional<bool> read_is_causal(ConfigFields& fields, ConfigFields& top, bool speculators) {
  if (speculators) {
    if (fields.flag("sliding_window_non_causal", false)) return false;
    return std::nullopt;
  }
  // Published files have is_causal at the top level only; vLLM's name for it stands in
  // dflash_config.
  const auto said = top.maybe_flag("is_causal");
  const auto other = fields.maybe_flag("causal");
  if (said && other && *said != *other) {
    fields.refuse(Code::mismatch, "causal",
                  fmt::format("is {}, but is_causal is {}", *other, *said));
  }
  return said ? said : other;
}

}  // namespace

bool is_draft_config(const JsonDocument& config) {
  const JsonView root = config.root();
  const std::string architecture = first_architecture(root);
  return static_cast<bool>(root["dflash_config"]) || is_speculators(root) ||
         architecture.find("DFlash") != std::string::npos ||
         architecture.find("DSpark") != std::string::npos ||
         architecture == "MuseGlimmerAssistantModel";
}

Result<DraftConfig> draft_config_from_hf(const HfConfigFiles& files,
                                         const std::vector<std::string_view>& tensors) {
  const JsonView root = files.config.root();
  const bool speculators = is_speculators(root);
  ConfigFields fields(files.config_path,
                      {root[speculators ? "transformer_layer_config" : "dflash_config"], root});
  ConfigFields top(files.config_path, {root});
  DraftConfig config;
  refuse_other_kinds(fields, root);
  if (!fields.status().ok()) return fields.status();
  auto kind = read_draft_tensors(files.config_path, tensors);
  if (!kind.ok()) return kind.status();
  config.architecture = first_architecture(root) == kArchitecture2 ? kArchitecture2 : kArchitecture;
  read_dflash2(fields, config);

  config.hidden_size = fields.count("hidden_size", {1, limits::kHiddenMax});
  config.layers = fields.count("num_hidden_layers", {1, limits::kLayersMax});
  config.heads = fields.count("num_attention_heads", {1, limits::kHeadsMax});
  config.kv_heads = fields.count("num_key_value_heads", {1, limits::kHeadsMax}, config.heads);
  config.head_dim = fields.count("head_dim", {2, limits::kHeadDimMax}, 128);
  config.intermediate_size = fields.count("intermediate_size", {1, limits::kIntermediateMax});
  config.vocab_size = fields.count("vocab_size", {1, limits::kVocabMax});
  config.max_positions = fields.count("max_position_embeddings", {1, limits::kPositionsMax});
  config.rms_eps = fields.positive("rms_norm_eps", 1e-6);
  config.attention_bias = fields.flag("attention_bias", false);
  config.block_size = fields.count("block_size", {2, limits::kBlockMax}, speculators ? 8u : 16u);
  if (fields.has("target_hidden_size")) {
    config.target_hidden_size = fields.count("target_hidden_size", {1, limits::kHiddenMax});
  }
  // As large as the target's: no vocabulary of its own.
  if (const auto own = fields.count("draft_vocab_size", {0, limits::kVocabMax}, 0);
      own != config.vocab_size || !kind.value().id_map.empty()) {
    config.draft_vocab_size = own;
  }
  if (!fields.has("mask_token_id")) {
    fields.refuse(Code::invalid_argument, "mask_token_id", "is missing; it is never guessed");
  }
  config.mask_id = fields.count("mask_token_id", {0, limits::kVocabMax}, 0);
  if (fields.has("num_target_layers")) {
    config.num_target_layers = fields.count("num_target_layers", {1, limits::kLayersMax});
  }
  read_taps(fields, speculators, config);
  read_layer_types(fields, config);
  config.is_causal = read_is_causal(fields, top, speculators);
  config.input_embedding_scale = fields.maybe_positive("input_embedding_scale");
  config.output_multiplier = fields.positive("output_multiplier", 1.0);
  if (const auto cap = fields.json("final_logit_softcapping").number(); !cap || *cap != 0.0) {
    config.final_logit_softcapping = fields.maybe_positive("final_logit_softcapping").value_or(0.0);
  }
  if (Status s = check_quantisation(files.config); !s.ok()) {
    fields.refuse(s.code(), "quantization", s.message());
  }
  config.rope = read_hf_rope(fields, files.config_path);
  fields.absorb(top);
  if (!fields.status().ok()) return fields.status();
  if (auto checked = check_draft(files.config_path, config); !checked.ok()) return checked;
  const std::string said = fmt::format("architectures says \"{}\"", config.architecture);
  if (auto settled = settle_draft_kind(files.config_path, kind.value(), said, config);
      !settled.ok()) {
    return settled;
  }
  return config;
}

}  // namespace drafthouse
