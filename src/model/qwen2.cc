#include "model/family.h"

namespace drafthouse {

// Qwen2 and 2.5 dense: queries, keys and values have biases, the attention's output has none.
void declare_qwen2_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer) {
  static_cast<void>(config);
  layer.declare_attention(loader, prefix, plan.shape, {.qkv_bias = true, .own_kv = plan.own_kv});
  layer.declare_mlp(loader, prefix, plan.shape);
}

}  // namespace drafthouse
