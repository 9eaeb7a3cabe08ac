#include "model/family.h"

namespace drafthouse {

// Llama 2/3 and their relatives (SmolLM2): plain norms, no query or key norm; the head may be tied,
// rope may be scaled.
void declare_llama_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer) {
  layer.declare_attention(loader, prefix, plan.shape,
                          {.qkv_bias = config.attention_bias,
                           .o_bias = config.attention_bias,
                           .interleaved_rope_rows = config.interleaved_rope_rows,
                           .own_kv = plan.own_kv});
  layer.declare_mlp(loader, prefix, plan.shape);
}

}  // namespace drafthouse
