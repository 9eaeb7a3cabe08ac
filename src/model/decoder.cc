#include "model/decoder.h"

#include <fmt/format.h>


namespace drafthouse {
namespace {

using Maker = std::unique_ptr<Decoder> (*)(const ModelConfig&, Rope, bool);

struct Family {
  const char* name;
  Maker make;
};
constexpr Family kFamilies[] = {{"llama", make_llama}, {"qwen3", make_qwen3}};

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::make(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32) {
  if (config.attention_bias || config.mlp_bias) {
    return Status(Code::unsupported,
                  fmt::format("{}: {} with biases is not built", source.label(), config.family));
  }
  for (const Family& family : kFamilies) {
    if (config.family != family.name) continue;
    Result<Rope> rope = Rope::create(config.rope, config.head_dim);
    if (!rope.ok()) return rope.status();
    std::unique_ptr<Decoder> decoder =
        family.make(config, std::move(rope).value(), compute_fp32);
    if (Status s = decoder->shape_.check(source.label()); !s.ok()) return s;
    return decoder;
  }
  return Status(Code::unsupported,
                fmt::format("{}: no target family \"{}\" is built; known: llama, qwen3",
                            source.label(), config.family));
}

Result<std::unique_ptr<Decoder>> Decoder::load(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32,
                                               ThreadPool& pool, MemoryLedger& ledger,
                                               const LoadProgress& progress,
                                               const std::atomic<bool>* cancel) {
  Result<std::unique_ptr<Decoder>> decoder = make(config, source, compute_fp32);
  if (!decoder.ok()) return decoder;
  WeightLoader loader(source);
  decoder.value()->declare(loader);
  Result<Buffer> memory = loader.load(pool, ledger, progress, cancel);
  if (!memory.ok()) return memory.status();
  decoder.value()->memory_ = std::move(memory).value();
  decoder.value()->weights_digest_ = loader.digest();
  return decoder;
}

Result<std::uint64_t> Decoder::bytes_to_pack(const ModelConfig& config, const WeightSource& source,
                                             bool compute_fp32) {
  Result<std::unique_ptr<Decoder>> decoder = make(config, source, compute_fp32);
  if (!decoder.ok()) return decoder.status();
  WeightLoader loader(source);
  decoder.value()->declare(loader);
  if (!loader.status().ok()) return loader.status();
  return loader.bytes_packed();
}

Decoder::Decoder(const ModelConfig& config, Rope rope, bool compute_fp32)
    : config_(config),
      shape_{.hidden = config.hidden_size,
             .heads = config.heads,
             .kv_heads = config.kv_heads,
             .head_dim = config.head_dim,
             .intermediate = config.intermediate_size,
             .eps = static_cast<float>(config.rms_eps)},
      rope_(std::move(rope)),
      compute_fp32_(compute_fp32),
      layers_(config.layers) {}

void Decoder::declare_layers(WeightLoader& loader, bool qk_norm) {
  const ModelConfig& c = config_;
  loader.matrix(&embedding_, "model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    layers_[i].declare(loader, fmt::format("model.layers.{}.", i), shape_, qk_norm,
                       c.interleaved_rope_rows);
  }
  loader.absent(fmt::format("model.layers.{}.input_layernorm.weight", c.layers));
  final_norm_.eps = shape_.eps;
  loader.vector(&final_norm_.gain, "model.norm.weight", c.hidden_size);
  if (!c.tied_head) loader.matrix(&head_, "lm_head.weight", c.vocab_size, c.hidden_size);
}

KvLayout Decoder::kv_layout(std::uint32_t layer) const {
  KvLayout layout{.kind = kv_kind(), .kv_heads = config_.kv_heads, .head_dim = config_.head_dim};
  layout.layer_offset = layer * layout.layer_bytes();
  return layout;
}

std::size_t Decoder::page_bytes() const { return config_.layers * kv_layout(0).layer_bytes(); }

std::size_t Decoder::pass_bytes() const {
  std::size_t bytes = head().bytes();
  for (const DecoderLayer& layer : layers_) bytes += layer.matrix_bytes();
  return bytes;
}

std::uint64_t Decoder::operations_per_row() const {
  std::uint64_t weights = std::uint64_t{head().outputs} * head().inputs;
  for (const DecoderLayer& layer : layers_) weights += layer.matrix_weights();
  return 2 * weights;
}

Result<Scratch> Decoder::make_scratch(std::uint32_t rows, MemoryLedger& ledger) const {
  return Scratch::create(rows, shape_.hidden, shape_.qkv_width(), shape_.q_width(),
                         shape_.intermediate, ledger);
}

Status Decoder::forward(Device& device, StepTable& step, Scratch& scratch,
                        std::span<const std::uint32_t> tap_layers,
                        const std::atomic<bool>* cancel) const {
  const std::uint32_t hidden = config_.hidden_size;
  float* stream = scratch.hidden.as<float>();
  const PassWatch watch(device, cancel);
  rope_.fill(step);
  device.embed(step, embedding_, 1.0f, stream);
  std::size_t tap = 0;
  for (std::uint32_t i = 0; i < config_.layers; ++i) {
    if (watch.cancelled()) return Status(Code::cancelled, "cancelled during a pass");
    run_attention(device, step, scratch, layers_[i], shape_, {.kv = kv_layout(i)}, compute_fp32_);
    run_mlp(device, step, scratch, layers_[i], shape_, compute_fp32_);
    if (tap < tap_layers.size() && tap_layers[tap] == i) {
      const std::size_t width = tap_layers.size() * hidden;
      for (const StepSpan& span : step.spans) {
        if (span.taps == nullptr) continue;
        device.capture_tap(stream + std::size_t{span.first_row} * hidden, hidden, span.rows, hidden,
                           span.taps + tap * hidden, width);
      }
      ++tap;
    }
  }
  gather_normed(device, step, scratch, final_norm_, hidden);
  if (device.given_up()) return Status(Code::cancelled, "cancelled during a pass");
  return {};
}

void Decoder::project_head(Device& device, const float* normed, std::uint32_t rows,
                           float* logits) const {
  const LinearSegment segments[] = {{head(), 0}};
  device.linear(segments, compute_fp32_, normed, config_.hidden_size, rows, logits,
                config_.vocab_size, false);
}

}  // namespace drafthouse
