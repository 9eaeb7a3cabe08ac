#include <fmt/format.h>

#include "model/decoder.h"

namespace drafthouse {
namespace {

// Qwen3 dense: every query and key head is RMS-normed, with one gain for all heads, before rope.
class Qwen3 final : public Decoder {
 public:
  Qwen3(const ModelConfig& config, Rope rope, bool compute_fp32)
      : Decoder(config, std::move(rope), compute_fp32) {}

 private:
  void declare(WeightLoader& loader) override {
    declare_shared(loader);
    for (std::uint32_t i = 0; i < config_.layers; ++i) {
      DecoderLayer& layer = layers_[i];
      layer.q_norm.eps = layer.k_norm.eps = static_cast<float>(config_.rms_eps);
      const std::string prefix = fmt::format("model.layers.{}.self_attn.", i);
      loader.vector(&layer.q_norm.gain, prefix + "q_norm.weight", config_.head_dim);
      loader.vector(&layer.k_norm.gain, prefix + "k_norm.weight", config_.head_dim);
    }
  }
};

}  // namespace

std::unique_ptr<Decoder> make_qwen3(const ModelConfig& config, Rope rope, bool compute_fp32) {
  return std::make_unique<Qwen3>(config, std::move(rope), compute_fp32);
}

}  // namespace drafthouse
