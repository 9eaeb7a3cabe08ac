#include "model/family.h"

namespace drafthouse {

// gpt-oss: biases everywhere, a learned sink in every head's softmax, and experts only, behind a router
// with a bias.
void declare_gpt_oss_layer(WeightLoader& loader, const std::string& prefix,
                           const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer) {
  const LayerShape& shape = plan.shape;
  layer.declare_attention(loader, prefix, shape,
                          {.qkv_bias = config.attention_bias,
                           .o_bias = config.attention_bias,
                           .own_kv = plan.own_kv});
  loader.vector(&layer.sinks, prefix + "self_attn.sinks", shape.heads);
  layer.declare_mlp(loader, prefix, shape);
  loader.matrix(&layer.router, prefix + "mlp.router.weight", shape.experts, shape.hidden);
  loader.vector(&layer.router_bias, prefix + "mlp.router.bias", shape.experts);
  declare_interleaved_experts(loader, prefix + "mlp.experts.", shape, layer);
}

}  // namespace drafthouse
