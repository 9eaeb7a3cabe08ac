#include "model/family.h"

namespace drafthouse {

// Llama 2/3 and their relatives (SmolLM2): plain norms, no query or key norm, no biases; the head may
// be tied, rope may be scaled.
void declare_llama_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer) {
  layer.declare(loader, prefix, plan.shape, false, config.interleaved_rope_rows, plan.own_kv);
}

}  // namespace drafthouse
