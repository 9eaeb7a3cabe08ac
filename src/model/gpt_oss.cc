#include "model/family.h"

namespace drafthouse {

// gpt-oss: biases everywhere, a learned sink in every head's softmax, and experts only, behind a
// router with a bias. Names are Hugging Face's, or what those of a GGUF file become (gguf_names.h).
void declare_gpt_oss_layer(WeightLoader& loader, const std::string& prefix,
                           const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer) {
  const LayerShape& shape = plan.shape;
  layer.declare_attention(
      loader, prefix, shape,
      {.qkv_bias = config.attention_bias, .o_bias = config.attention_bias, .own_kv = plan.own_kv});
  const bool gguf = loader.has(prefix + "mlp.gate.weight");
  const std::string router = prefix + (gguf ? "mlp.gate" : "mlp.router");
  loader.vector(&layer.sinks, prefix + (gguf ? "self_attn.sinks.weight" : "self_attn.sinks"),
                shape.heads);
  layer.declare_mlp(loader, prefix, shape);
  loader.matrix(&layer.router, router + ".weight", shape.experts, shape.hidden);
  loader.vector(&layer.router_bias, router + ".bias", shape.experts);
  if (gguf) return declare_experts(loader, prefix + "mlp.experts.", shape, layer);
  declare_interleaved_experts(loader, prefix + "mlp.experts.", shape, layer);
}

}  // namespace drafthouse
