#include <algorithm>
#include <array>
#include <cmath>

#include "model/family.h"
#include "tensor/head_dim.h"

namespace drafthouse {
namespace {

// Norms without a gain.
constexpr std::array<float, kHeadDimMax> kOnes = [] {
  std::array<float, kHeadDimMax> ones{};
  ones.fill(1.0f);
  return ones;
}();

void declare_gemma4_experts(WeightLoader& loader, const std::string& prefix,
                            const LayerShape& shape, DecoderLayer& layer) {
  const auto norm = [&](NormWeights& out, const char* name, float scale = 1.0f) {
    out.eps = shape.eps;
    loader.vector(&out.gain, prefix + name, shape.hidden, scale);
  };
  norm(layer.dense_out_norm, "post_feedforward_layernorm_1.weight");
  norm(layer.expert_norm, "pre_feedforward_layernorm_2.weight");
  norm(layer.expert_out_norm, "post_feedforward_layernorm_2.weight");
  // The router sees norm(stream) · scale · hidden^−½.
  norm(layer.router_norm, "router.scale", 1.0f / std::sqrt(static_cast<float>(shape.hidden)));
  loader.matrix(&layer.router, prefix + "router.proj.weight", shape.experts, shape.hidden);
  loader.vector(&layer.expert_scale, prefix + "router.per_expert_scale", shape.experts);
  declare_experts(loader, prefix + "experts.", shape, layer);
}

}  // namespace

// Gemma 4: norms before and after each part, values normed without a gain, sliding and full layers
// of different shapes. Full layers may take their values from the keys' projection, late layers
// their keys and values from earlier ones; beside the dense MLP there may be experts, and every
// layer may get an embedding of its own.
void declare_gemma4_layer(WeightLoader& loader, const std::string& prefix,
                          const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer) {
  const LayerShape& shape = plan.shape;
  const auto norm = [&](NormWeights& out, const char* name) {
    out.eps = shape.eps;
    loader.vector(&out.gain, prefix + name, shape.hidden);
  };
  layer.declare_attention(
      loader, prefix, shape,
      {.qk_norm = true,
       .own_kv = plan.own_kv,
       .value_is_key = config.value_is_key && plan.kind == LayerKind::full_attention});
  layer.v_norm = {kOnes.data(), shape.eps};
  norm(layer.attention_out_norm, "post_attention_layernorm.weight");
  layer.declare_mlp(loader, prefix, shape, "pre_feedforward_layernorm.weight");
  norm(layer.mlp_out_norm, "post_feedforward_layernorm.weight");
  if (shape.experts != 0) declare_gemma4_experts(loader, prefix, shape, layer);
  if (shape.layer_input != 0) {
    loader.matrix(&layer.input_gate, prefix + "per_layer_input_gate.weight", shape.layer_input,
                  shape.hidden);
    loader.matrix(&layer.input_projection, prefix + "per_layer_projection.weight", shape.hidden,
                  shape.layer_input);
    norm(layer.input_norm, "post_per_layer_input_norm.weight");
  }
  loader.vector(&layer.output_scale, prefix + "layer_scalar", 1);
}

}  // namespace drafthouse
