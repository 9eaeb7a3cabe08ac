#include "formats/gguf_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "formats/gguf_config.h"
#include "formats/tensor_layouts.h"

namespace drafthouse {
namespace {

struct Renamed {
  std::string_view gguf;
  std::string_view name;
};

constexpr std::array kLayerParts = {
    Renamed{"attn_norm", "input_layernorm"},
    Renamed{"attn_q", "self_attn.q_proj"},
    Renamed{"attn_k", "self_attn.k_proj"},
    Renamed{"attn_v", "self_attn.v_proj"},
    Renamed{"attn_output", "self_attn.o_proj"},
    Renamed{"attn_q_norm", "self_attn.q_norm"},
    Renamed{"attn_k_norm", "self_attn.k_norm"},
    Renamed{"ffn_norm", "post_attention_layernorm"},
    Renamed{"ffn_gate", "mlp.gate_proj"},
    Renamed{"ffn_up", "mlp.up_proj"},
    Renamed{"ffn_down", "mlp.down_proj"},
    Renamed{"ffn_gate_inp", "mlp.gate"},
    Renamed{"ffn_gate_exps", "mlp.experts.gate_proj"},
    Renamed{"ffn_up_exps", "mlp.experts.up_proj"},
    Renamed{"ffn_down_exps", "mlp.experts.down_proj"},
    Renamed{"attn_sinks", "self_attn.sinks"},
    Renamed{"post_attention_norm", "post_attention_layernorm"},
    Renamed{"attn_conv_proj", "attention_conv.kernel_projection"},
    Renamed{"ffn_conv_proj", "mlp_conv.kernel_projection"},
    Renamed{"attn_conv_base", "attention_conv.base_kernel"},
    Renamed{"ffn_conv_base", "mlp_conv.base_kernel"},
};

constexpr std::array kTargetParts = {
    Renamed{"token_embd", "model.embed_tokens"},
    Renamed{"output_norm", "model.norm"},
    Renamed{"output", "lm_head"},
};

// What architectures name otherwise: whole names, behind "blk.N." for those of layers.
constexpr Renamed kGemma4[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
};
constexpr Renamed kGemma4Layer[] = {
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_gate_exps.weight", "experts.gate_proj.weight"},
    {"ffn_up_exps.weight", "experts.up_proj.weight"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj.weight"},
    {"ffn_down_exps.weight", "experts.down_proj.weight"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"inp_gate.weight", "per_layer_input_gate.weight"},
    {"proj.weight", "per_layer_projection.weight"},
    {"post_norm.weight", "post_per_layer_input_norm.weight"},
};
constexpr Renamed kQwen3NextLayer[] = {
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight"},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight"},
    {"ssm_in.weight", "linear_attn.in_proj_qkvz.weight"},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight"},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight"},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight"},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight"},
    {"ssm_dt.bias", "linear_attn.dt_bias"},
    {"ssm_a", "linear_attn.rate"},
    {"ssm_norm.weight", "linear_attn.norm.weight"},
    {"ssm_out.weight", "linear_attn.out_proj.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj.weight"},
};
constexpr Renamed kLfm2[] = {
    {"token_embd_norm.weight", "model.embedding_norm.weight"},
    {"output_norm.weight", "model.embedding_norm.weight"},
};
constexpr Renamed kLfm2Layer[] = {
    {"attn_norm.weight", "operator_norm.weight"},
    {"attn_output.weight", "self_attn.out_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_layernorm.weight"},
    {"attn_k_norm.weight", "self_attn.k_layernorm.weight"},
    {"shortconv.conv.weight", "conv.conv.weight"},
    {"shortconv.in_proj.weight", "conv.in_proj.weight"},
    {"shortconv.out_proj.weight", "conv.out_proj.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"ffn_gate.weight", "feed_forward.w1.weight"},
    {"ffn_up.weight", "feed_forward.w3.weight"},
    {"ffn_down.weight", "feed_forward.w2.weight"},
};

struct OwnNames {
  std::string_view architecture;
  std::span<const Renamed> whole = {};
  std::span<const Renamed> of_layer = {};
};
constexpr OwnNames kOwnNames[] = {
    {"gemma4", kGemma4, kGemma4Layer}, {"qwen3next", {}, kQwen3NextLayer},
    {"qwen35", {}, kQwen3NextLayer},   {"qwen35moe", {}, kQwen3NextLayer},
    {"lfm2", kLfm2, kLfm2Layer},
};

constexpr std::array kDraftParts = {
    Renamed{"output_norm", "norm"},
    Renamed{"enc.output_norm", "hidden_norm"},
    Renamed{"output_norm_enc", "hidden_norm"},
    Renamed{"token_embd", "embed_tokens"},
    Renamed{"output", "lm_head"},
    Renamed{"selector_hidden", "candidate_selector.hidden_projection"},
    Renamed{"selector_predecessor", "candidate_selector.predecessor_codebook"},
    Renamed{"selector_successor", "candidate_selector.successor_codebook"},
    Renamed{"selector_prev", "candidate_selector.predecessor_codebook"},
    Renamed{"selector_next", "candidate_selector.successor_codebook"},
};

std::optional<std::string_view> find(std::span<const Renamed> table, std::string_view part) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Renamed& r) { return r.gguf == part; });
  return found == table.end() ? std::nullopt : std::optional(found->name);
}

bool is_layer_number(std::string_view text) {
  return !text.empty() && text.size() <= 4 && (text == "0" || text.front() != '0') &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "blk.3.attn_q.weight" is {"3", "attn_q.weight"}; nothing for other names.
struct LayerName {
  std::string_view layer;
  std::string_view part;
};
std::optional<LayerName> layer_name(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  const std::string_view rest = name.substr(kBlock.size());
  const auto after = rest.find('.');
  if (after == std::string_view::npos || !is_layer_number(rest.substr(0, after))) {
    return std::nullopt;
  }
  return LayerName{rest.substr(0, after), rest.substr(after + 1)};
}

std::string renamed(std::string_view name, std::span<const Renamed> table,
                    std::string_view layers) {
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  std::string_view part = name.substr(0, dot);
  std::string_view suffix = name.substr(dot);  // ".weight"
  if (name.ends_with("_conv_base")) {
    part = name;
    suffix = "";
  } else if (suffix != ".weight" && suffix != ".bias") {
    return std::string(name);
  }
  if (const auto known = find(table, part)) return std::string(*known).append(suffix);
  const auto of_layer = layer_name(part);
  if (!of_layer) return std::string(name);
  const auto known = find(kLayerParts, of_layer->part);
  if (!known) return std::string(name);
  return std::string(layers).append(of_layer->layer).append(".").append(*known).append(suffix);
}

}  // namespace

std::string target_tensor_name(std::string_view architecture, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  for (const OwnNames& own : kOwnNames) {
    if (own.architecture != architecture) continue;
    if (const auto known = find(own.whole, name)) return std::string(*known);
    const auto of_layer = layer_name(name);
    if (!of_layer) break;
    if (const auto known = find(own.of_layer, of_layer->part)) {
      return std::string(kLayers).append(of_layer->layer).append(".").append(*known);
    }
  }
  return renamed(name, kTargetParts, kLayers);
}

std::string draft_tensor_name(std::string_view name) {
  return renamed(name, kDraftParts, "layers.");
}

void name_tensors(const GgufMetadata& metadata, std::vector<TensorInfo>& tensors) {
  const std::string architecture = metadata.text("general.architecture").value_or("");
  const bool draft = is_draft_gguf(metadata);
  const std::uint64_t blocks = metadata.whole(architecture + ".block_count").value_or(0);
  const std::uint64_t extra = metadata.whole(architecture + ".nextn_predict_layers").value_or(0);
  for (TensorInfo& tensor : tensors) {
    const auto of_layer = layer_name(tensor.file_name);
    if (draft) {
      tensor.name = draft_tensor_name(tensor.file_name);
    } else if (of_layer && extra != 0 && extra < blocks &&
               std::stoull(std::string(of_layer->layer)) >= blocks - extra) {
      tensor.name = tensor.file_name;
    } else {
      tensor.name = target_tensor_name(architecture, tensor.file_name);
    }
  }
  if (!draft) unify_shapes(tensors);
}

}  // namespace drafthouse
