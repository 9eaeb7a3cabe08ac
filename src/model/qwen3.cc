#include "model/decoder.h"

namespace drafthouse {
namespace {

// Qwen3 dense: every query and key head is RMS-normed, with one gain for all heads, before rope.
class Qwen3 final : public Decoder {
 public:
  Qwen3(const ModelConfig& config, Rope rope, bool compute_fp32)
      : Decoder(config, std::move(rope), compute_fp32) {}

 private:
  void declare(WeightLoader& loader) override { declare_layers(loader, true); }
};

}  // namespace

std::unique_ptr<Decoder> make_qwen3(const ModelConfig& config, Rope rope, bool compute_fp32) {
  return std::make_unique<Qwen3>(config, std::move(rope), compute_fp32);
}

}  // namespace drafthouse
