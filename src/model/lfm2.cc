#include "model/family.h"

namespace drafthouse {

// LFM2: gated short convolutions, and attention with normed queries and keys, under names of its
// own.
void declare_lfm2_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                        const LayerPlan& plan, DecoderLayer& layer) {
  static_cast<void>(config);
  const LayerShape& shape = plan.shape;
  const std::uint32_t hidden = shape.hidden;
  const auto norm = [&](NormWeights& out, const std::string& name, std::uint32_t width) {
    out.eps = shape.eps;
    loader.vector(&out.gain, prefix + name, width);
  };
  norm(layer.attention_norm, "operator_norm.weight", hidden);
  if (attends(plan.kind)) {
    const std::string own = prefix + "self_attn.";
    loader.matrix(&layer.q, own + "q_proj.weight", shape.q_width(), hidden);
    loader.matrix(&layer.k, own + "k_proj.weight", shape.kv_width(), hidden);
    loader.matrix(&layer.v, own + "v_proj.weight", shape.kv_width(), hidden);
    loader.matrix(&layer.o, own + "out_proj.weight", hidden, shape.q_width());
    norm(layer.q_norm, "self_attn.q_layernorm.weight", shape.head_dim);
    norm(layer.k_norm, "self_attn.k_layernorm.weight", shape.head_dim);
  } else {
    const std::string own = prefix + "conv.";
    loader.matrix(&layer.recurrent.in, own + "in_proj.weight", 3 * hidden, hidden);
    declare_convolution(loader, own + "conv.weight", plan.recurrent, layer.recurrent);
    loader.matrix(&layer.recurrent.out, own + "out_proj.weight", hidden, hidden);
  }
  norm(layer.mlp_norm, "ffn_norm.weight", hidden);
  const std::string mlp = prefix + "feed_forward.";
  loader.matrix(&layer.gate, mlp + "w1.weight", shape.intermediate, hidden);
  loader.matrix(&layer.up, mlp + "w3.weight", shape.intermediate, hidden);
  loader.matrix(&layer.down, mlp + "w2.weight", hidden, shape.intermediate);
}

}  // namespace drafthouse
