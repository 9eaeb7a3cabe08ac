#include "model/family.h"

namespace drafthouse {

// Qwen3 dense: every query and key head is RMS-normed, with one gain for all heads, before rope.
void declare_qwen3_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer) {
  layer.declare(loader, prefix, plan.shape, true, config.interleaved_rope_rows, plan.own_kv);
}

}  // namespace drafthouse
