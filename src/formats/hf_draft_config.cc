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

struct Refusal {
  std::string_view key;
  std::string_view why;
};

// Fields that only another kind of draft has. Loaded as v1 such a draft would propose nonsense, or
// be off by one, without any error.
constexpr std::array kOtherKinds = {
    Refusal{"speculators_model_type",
            "is there: the speculators layout is not supported; use the "
            "checkpoint in z-lab's layout"},
    Refusal{"transformer_layer_config", "is there: the speculators layout is not supported"},
    Refusal{"markov_rank", "is there: DSpark and DeepSpec drafts (anchor-first) are not supported"},
    Refusal{"selector_rank", "is there: DFlash2 drafts are not supported"},
    Refusal{"conv_kernel_size", "is there: DFlash2 drafts are not supported"},
    Refusal{"causal", "is not supported; use is_causal"},
    Refusal{"attention_value_scale", "is not supported"},
    Refusal{"partial_rotary_factor", "is not supported"},
    Refusal{"draft_vocab_size",
            "is there: drafts with a vocabulary of their own are not supported"},
};

constexpr std::array kOtherFlags = {
    Refusal{"sample_from_anchor", "true: anchor-first drafts are not supported"},
    Refusal{"use_swa", "true is not supported; use layer_types"},
    Refusal{"attention_sink_bias", "true is not supported"},
};

std::string first_architecture(const JsonView root) {
  return root["architectures"].at(0).text().value_or("");
}

void refuse_other_kinds(ConfigFields& fields, const std::string& architecture) {
  if (!architecture.empty() && architecture != kArchitecture) {
    fields.refuse(Code::unsupported, "architectures",
                  fmt::format("\"{}\" is not supported as a draft; \"{}\" is",
                              printable(architecture), kArchitecture));
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

void read_taps(ConfigFields& fields, DraftConfig& config) {
  constexpr std::string_view kKey = "target_layer_ids";
  if (!fields.has(kKey)) {
    return fields.refuse(Code::invalid_argument, kKey,
                         "is missing; which layers of the target feed the draft is never guessed");
  }
  for (const std::int64_t id :
       fields.wholes(kKey, limits::kTapsMax).value_or(std::vector<std::int64_t>())) {
    if (id < 0 || id >= limits::kLayersMax) {
      fields.refuse(Code::invalid_argument, kKey, fmt::format("holds {}, which is no layer", id));
    }
    config.target_layer_ids.push_back(static_cast<std::uint32_t>(id));
  }
}

}  // namespace

bool is_draft_config(const JsonDocument& config) {
  const JsonView root = config.root();
  const std::string architecture = first_architecture(root);
  return static_cast<bool>(root["dflash_config"]) ||
         static_cast<bool>(root["speculators_model_type"]) ||
         architecture.find("DFlash") != std::string::npos ||
         architecture.find("DSpark") != std::string::npos ||
         architecture == "MuseGlimmerAssistantModel";
}

Result<DraftConfig> draft_config_from_hf(const HfConfigFiles& files,
                                         const std::vector<std::string_view>& tensors) {
  const JsonView root = files.config.root();
  ConfigFields fields(files.config_path, {root["dflash_config"], root});
  // Published files have is_causal at the top level only; one inside dflash_config is not z-lab's.
  ConfigFields top(files.config_path, {root});
  DraftConfig config;
  config.architecture = kArchitecture;
  refuse_other_kinds(fields, first_architecture(root));
  if (!fields.status().ok()) return fields.status();
  if (auto kind = check_draft_tensors(files.config_path, tensors); !kind.ok()) return kind;

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
  config.block_size = fields.count("block_size", {2, limits::kBlockMax}, 16);
  if (!fields.has("mask_token_id")) {
    fields.refuse(Code::invalid_argument, "mask_token_id", "is missing; it is never guessed");
  }
  config.mask_id = fields.count("mask_token_id", {0, limits::kVocabMax}, 0);
  if (fields.has("num_target_layers")) {
    config.num_target_layers = fields.count("num_target_layers", {1, limits::kLayersMax});
  }
  read_taps(fields, config);
  read_layer_types(fields, config);
  config.is_causal = top.maybe_flag("is_causal");
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
  return config;
}

}  // namespace drafthouse
