#include "model/family.h"

namespace drafthouse {

// Qwen3: every query and key head is RMS-normed, with one gain for all heads, before rope. Layers
// are dense, or (Qwen3-MoE) have experts behind a softmax router.
void declare_qwen3_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer) {
  layer.declare_attention(loader, prefix, plan.shape,
                          {.qk_norm = true,
                           .qkv_bias = config.attention_bias,
                           .o_bias = config.attention_bias,
                           .interleaved_rope_rows = config.interleaved_rope_rows,
                           .own_kv = plan.own_kv});
  layer.declare_mlp(loader, prefix, plan.shape);
  if (plan.shape.experts == 0) return;
  loader.matrix(&layer.router, prefix + "mlp.gate.weight", plan.shape.experts, plan.shape.hidden);
  declare_experts(loader, prefix + "mlp.experts.", plan.shape, layer);
}

}  // namespace drafthouse
