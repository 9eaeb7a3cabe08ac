#include "formats/gguf_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>

namespace drafthouse {
namespace {

struct Renamed {
  std::string_view gguf;
  std::string_view name;
};

constexpr std::array kLayerParts = {
    Renamed{"attn_norm", "input_layernorm"},    Renamed{"attn_q", "self_attn.q_proj"},
    Renamed{"attn_k", "self_attn.k_proj"},      Renamed{"attn_v", "self_attn.v_proj"},
    Renamed{"attn_output", "self_attn.o_proj"}, Renamed{"attn_q_norm", "self_attn.q_norm"},
    Renamed{"attn_k_norm", "self_attn.k_norm"}, Renamed{"ffn_norm", "post_attention_layernorm"},
    Renamed{"ffn_gate", "mlp.gate_proj"},       Renamed{"ffn_up", "mlp.up_proj"},
    Renamed{"ffn_down", "mlp.down_proj"},       Renamed{"ffn_gate_inp", "mlp.gate"},
    Renamed{"ffn_gate_exps", "mlp.experts.gate_proj"},
    Renamed{"ffn_up_exps", "mlp.experts.up_proj"},
    Renamed{"ffn_down_exps", "mlp.experts.down_proj"},
    Renamed{"attn_sinks", "self_attn.sinks"},
    Renamed{"post_attention_norm", "post_attention_layernorm"},
};

constexpr std::array kTargetParts = {
    Renamed{"token_embd", "model.embed_tokens"},
    Renamed{"output_norm", "model.norm"},
    Renamed{"output", "lm_head"},
};

constexpr std::array kDraftParts = {
    Renamed{"output_norm", "norm"},
    Renamed{"enc.output_norm", "hidden_norm"},
    Renamed{"output_norm_enc", "hidden_norm"},
    Renamed{"token_embd", "embed_tokens"},
    Renamed{"output", "lm_head"},
};

template <std::size_t N>
std::optional<std::string_view> find(const std::array<Renamed, N>& table, std::string_view part) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Renamed& r) { return r.gguf == part; });
  return found == table.end() ? std::nullopt : std::optional(found->name);
}

bool is_layer_number(std::string_view text) {
  return !text.empty() && text.size() <= 4 && (text == "0" || text.front() != '0') &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

template <std::size_t N>
std::string renamed(std::string_view name, const std::array<Renamed, N>& table,
                    std::string_view layers) {
  constexpr std::string_view kBlock = "blk.";
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view part = name.substr(0, dot);
  const std::string_view suffix = name.substr(dot);  // ".weight"
  if (suffix != ".weight" && suffix != ".bias") return std::string(name);
  if (const auto known = find(table, part)) return std::string(*known).append(suffix);
  if (part.substr(0, kBlock.size()) != kBlock) return std::string(name);
  const std::string_view rest = part.substr(kBlock.size());
  const auto after = rest.find('.');
  if (after == std::string_view::npos || !is_layer_number(rest.substr(0, after))) {
    return std::string(name);
  }
  const auto known = find(kLayerParts, rest.substr(after + 1));
  if (!known) return std::string(name);
  return std::string(layers)
      .append(rest.substr(0, after))
      .append(".")
      .append(*known)
      .append(suffix);
}

}  // namespace

std::string target_tensor_name(std::string_view name) {
  return renamed(name, kTargetParts, "model.layers.");
}

std::string draft_tensor_name(std::string_view name) {
  return renamed(name, kDraftParts, "layers.");
}

}  // namespace drafthouse
