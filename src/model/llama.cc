#include "model/decoder.h"

namespace drafthouse {
namespace {

// Llama 2/3 and their relatives (SmolLM2): plain norms, no query or key norm, no biases; the head may
// be tied, rope may be scaled.
class Llama final : public Decoder {
 public:
  Llama(const ModelConfig& config, Rope rope, bool compute_fp32)
      : Decoder(config, std::move(rope), compute_fp32) {}

 private:
  void declare(WeightLoader& loader) override { declare_layers(loader, false); }
};

}  // namespace

std::unique_ptr<Decoder> make_llama(const ModelConfig& config, Rope rope, bool compute_fp32) {
  return std::make_unique<Llama>(config, std::move(rope), compute_fp32);
}

}  // namespace drafthouse
