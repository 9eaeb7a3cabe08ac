#include "model/family.h"

namespace drafthouse {
namespace {

// Every layer has a gated MLP, or experts beside one that has a gate of its own (`shared_expert`);
// mixers are the gated delta rule, or attention whose output is gated.
void declare(WeightLoader& loader, const std::string& prefix, const LayerPlan& plan,
             DeltaTensors delta, DecoderLayer& layer) {
  const LayerShape& shape = plan.shape;
  if (attends(plan.kind)) {
    layer.declare_attention(loader, prefix, shape, {.qk_norm = true, .own_kv = plan.own_kv});
  } else {
    layer.attention_norm.eps = shape.eps;
    loader.vector(&layer.attention_norm.gain, prefix + "input_layernorm.weight", shape.hidden, 1.0f,
                  shape.gain_offset);
    declare_delta_rule(loader, prefix, plan.recurrent, shape.hidden, shape.eps, delta,
                       layer.recurrent);
  }
  const bool experts = shape.experts != 0;
  layer.declare_mlp(loader, prefix, shape, "post_attention_layernorm.weight",
                    experts ? "mlp.shared_expert." : "mlp.");
  if (!experts) return;
  loader.matrix(&layer.dense_gate, prefix + "mlp.shared_expert_gate.weight", 1, shape.hidden);
  loader.matrix(&layer.router, prefix + "mlp.gate.weight", shape.experts, shape.hidden);
  declare_experts(loader, prefix + "mlp.experts.", shape, layer);
}

}  // namespace

void declare_qwen3_next_layer(WeightLoader& loader, const std::string& prefix,
                              const ModelConfig& config, const LayerPlan& plan,
                              DecoderLayer& layer) {
  declare(loader, prefix, plan, {.fused = true, .tiled_heads = config.tiled_value_heads}, layer);
}

void declare_qwen3_5_layer(WeightLoader& loader, const std::string& prefix,
                           const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer) {
  declare(loader, prefix, plan, {.fused = false, .tiled_heads = config.tiled_value_heads}, layer);
}

}  // namespace drafthouse
