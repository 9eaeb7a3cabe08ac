#include "formats/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "formats/hf_families.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/quantisation.h"

namespace drafthouse {
namespace {

// The scopes of a config: a multimodal wrapper nests the text model and keeps some keys outside.
std::vector<JsonView> text_scopes(const JsonView root) {
  if (const JsonView text = root["text_config"]; text.is_object()) return {text, root};
  return {root};
}

void add_stop_ids(ConfigFields& fields, std::uint32_t vocab_size, std::vector<std::uint32_t>& ids) {
  constexpr std::string_view kKey = "eos_token_id";
  const JsonView value = fields.json(kKey);
  if (!value) return;
  const std::size_t count = value.is_array() ? value.size() : 1;
  if (count > limits::kStopIdsMax) {
    return fields.refuse(
        Code::invalid_argument, kKey,
        fmt::format("has {} entries; at most {} are read", count, limits::kStopIdsMax));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const JsonView entry = value.is_array() ? value.at(i) : value;
    const auto id = entry.whole();
    if (!id || *id >= vocab_size) {
      return fields.refuse(
          Code::invalid_argument, kKey,
          fmt::format("{} {}, which is no token id: the embedding has {} rows",
                      value.is_array() ? "holds" : "is", entry.shown(), vocab_size));
    }
    ids.push_back(static_cast<std::uint32_t>(*id));
  }
}

// Fields whose other values would change the arithmetic without changing a tensor.
void refuse_what_is_not_built(ConfigFields& fields, const HfFamily& family) {
  const auto act = fields.text("hidden_act");
  if (family.silu && act && *act != "silu") {
    fields.refuse(Code::unsupported, "hidden_act",
                  fmt::format("\"{}\" is not supported; only \"silu\" is", printable(*act)));
  }
  if (fields.flag("use_sliding_window", false)) {
    fields.refuse(Code::unsupported, "use_sliding_window", "true is not supported for a target");
  }
  const JsonView types = fields.json("layer_types");
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto type = types.at(i).text();
    if (type == "full_attention" || (family.sliding_layers && type == "sliding_attention"))
      continue;
    if (!family.recurrent.empty() && type == family.recurrent) continue;
    fields.refuse(Code::unsupported, "layer_types",
                  fmt::format("entry \"{}\" is not supported; only \"full_attention\"{}",
                              printable(type.value_or("?")),
                              family.sliding_layers ? " and \"sliding_attention\" are" : " is"));
  }
  const auto part = fields.maybe_positive("partial_rotary_factor");
  if (!family.partial_rope && part && *part != 1.0) {
    fields.refuse(Code::unsupported, "partial_rotary_factor", "other than 1 is not supported");
  }
}

void check_heads(ConfigFields& fields, std::uint32_t heads, std::uint32_t kv_heads,
                 std::uint32_t head_dim) {
  if (heads % kv_heads != 0) {
    fields.refuse(Code::invalid_argument, "num_key_value_heads",
                  fmt::format("is {}, which does not divide the {} heads", kv_heads, heads));
  }
  if (head_dim % 2 != 0) {
    fields.refuse(Code::invalid_argument, "head_dim", fmt::format("is odd ({})", head_dim));
  }
}

// transformers gives Qwen3 heads of 128 when the key is absent, and Llama an even share.
std::uint32_t default_head_dim(ConfigFields& fields, std::string_view family, std::uint32_t hidden,
                               std::uint32_t heads) {
  if (family == "qwen3") return 128;
  if (!fields.has("head_dim") && (hidden % heads != 0 || hidden / heads > limits::kHeadDimMax)) {
    fields.refuse(
        Code::invalid_argument, "head_dim",
        fmt::format("is missing, and hidden_size {} over {} heads gives none", hidden, heads));
  }
  return hidden / heads;
}

}  // namespace

Result<ModelConfig> model_config_from_hf(const HfConfigFiles& files) {
  ConfigFields fields(files.config_path, text_scopes(files.config.root()));
  ModelConfig config;
  const std::string model_type = fields.text("model_type").value_or("");
  // Checked first: another family lacks or redefines the fields below.
  const HfFamily* family = find_hf_family(model_type);
  if (family == nullptr) {
    return Status(Code::unsupported,
                  fmt::format("{}: model_type \"{}\" is not supported; known: {}",
                              files.config_path, printable(model_type), known_model_types()));
  }
  config.family = family->family;
  config.hidden_size = fields.count("hidden_size", {1, limits::kHiddenMax});
  config.layers = fields.count("num_hidden_layers", {1, limits::kLayersMax});
  config.heads = fields.count("num_attention_heads", {1, limits::kHeadsMax});
  config.kv_heads = fields.count("num_key_value_heads", {1, limits::kHeadsMax}, config.heads);
  config.head_dim =
      fields.count("head_dim", {2, limits::kHeadDimMax},
                   default_head_dim(fields, config.family, config.hidden_size, config.heads));
  config.intermediate_size =
      fields.count("intermediate_size", {1, limits::kIntermediateMax},
                   family->needs_mlp ? std::nullopt : std::optional<std::uint32_t>(1));
  config.vocab_size = fields.count("vocab_size", {1, limits::kVocabMax});
  config.max_positions = fields.count("max_position_embeddings", {1, limits::kPositionsMax});
  config.rms_eps = fields.positive("rms_norm_eps", 1e-6);
  config.tied_head = fields.flag("tie_word_embeddings", false);
  config.attention_bias = fields.flag("attention_bias", false);
  config.mlp_bias = config.family == "llama" && fields.flag("mlp_bias", false);
  check_heads(fields, config.heads, config.kv_heads, config.head_dim);
  refuse_what_is_not_built(fields, *family);
  if (family->one_rope) {
    config.rope =
        read_hf_rope(fields, files.config_path, {}, family->partial_rope ? config.head_dim : 0);
  }
  if (family->read != nullptr) family->read(fields, files.config_path, config);
  for (const LayerConfig& layer : config.layer_table) {
    check_heads(fields, layer.heads, layer.kv_heads, layer.head_dim);
  }
  if (Status s = check_quantisation(files.config); !s.ok()) {
    fields.refuse(s.code(), "quantization", s.message());
  }

  // Both levels: a wrapper and its text model may name different ends.
  ConfigFields top(files.config_path, {files.config.root()});
  ConfigFields generation(files.generation_path, {files.generation.root()});
  for (ConfigFields* source : {&generation, &fields, &top}) {
    add_stop_ids(*source, config.vocab_size, config.eos_ids);
  }
  for (const std::uint32_t id : files.text_stops) {
    if (id < config.vocab_size) config.eos_ids.push_back(id);
  }
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()),
                       config.eos_ids.end());
  fields.absorb(top);
  fields.absorb(generation);
  if (!fields.status().ok()) return fields.status();
  return config;
}

}  // namespace drafthouse
