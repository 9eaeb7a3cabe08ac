#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace drafthouse {

Result<std::unique_ptr<Decoder>> Decoder::make(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32) {
  if (config.mlp_bias || (config.attention_bias && config.interleaved_rope_rows)) {
    return Status(Code::unsupported, fmt::format("{}: {} with these biases is not built",
                                                 source.label(), config.family));
  }
  const Family* family = find_family(config.family);
  if (family == nullptr) {
    return Status(Code::unsupported, fmt::format("{}: no target family \"{}\" is built; known: {}",
                                                 source.label(), config.family, known_families()));
  }
  std::unique_ptr<Decoder> decoder(new Decoder(config, *family, compute_fp32));
  Result<LayerPlans> plans = plan_layers(config, decoder->kv_kind(), source.label());
  if (!plans.ok()) return plans.status();
  decoder->plans_ = std::move(plans).value();
  for (const LayerPlan& plan : decoder->plans_.layers) {
    // Layers of one rotary setting have heads of one size.
    if (!attends(plan.kind) || plan.rotary != decoder->ropes_.size()) continue;
    Result<Rope> rope =
        Rope::create(plan.rotary == 0 ? config.rope : *config.sliding_rope, plan.shape.head_dim);
    if (!rope.ok()) return rope.status();
    decoder->ropes_.push_back(std::move(rope).value());
  }
  return decoder;
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

Decoder::Decoder(const ModelConfig& config, const Family& family, bool compute_fp32)
    : config_(config), family_(family), compute_fp32_(compute_fp32), layers_(config.layers) {}

void Decoder::declare(WeightLoader& loader) {
  const ModelConfig& c = config_;
  loader.matrix(&embedding_, "model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  if (c.per_layer_input_size != 0) {
    const std::uint32_t width = c.layers * c.per_layer_input_size;
    loader.matrix(&layer_embedding_, "model.embed_tokens_per_layer.weight", c.vocab_size, width);
    loader.matrix(&layer_projection_, "model.per_layer_model_projection.weight", width,
                  c.hidden_size);
    layer_input_norm_.eps = static_cast<float>(c.rms_eps);
    loader.vector(&layer_input_norm_.gain, "model.per_layer_projection_norm.weight",
                  c.per_layer_input_size);
  }
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    family_.declare_layer(loader, fmt::format("model.layers.{}.", i), c, plans_.layers[i],
                          layers_[i]);
  }
  loader.absent(fmt::format("model.layers.{}.input_layernorm.weight", c.layers),
                "the configuration has fewer layers");
  final_norm_.eps = static_cast<float>(c.rms_eps);
  loader.vector(&final_norm_.gain, family_.final_norm, c.hidden_size, 1.0f,
                c.gain_from_one ? 1.0f : 0.0f);
  if (!c.tied_head) loader.matrix(&head_, "lm_head.weight", c.vocab_size, c.hidden_size);
}

std::size_t Decoder::pass_bytes() const {
  std::size_t bytes = head().bytes() + layer_projection_.bytes();
  for (const DecoderLayer& layer : layers_) bytes += layer.matrix_bytes(config_.experts.per_row);
  return bytes;
}

std::uint64_t Decoder::operations_per_row() const {
  std::uint64_t weights = std::uint64_t{head().outputs} * head().inputs +
                          std::uint64_t{layer_projection_.outputs} * layer_projection_.inputs;
  for (const DecoderLayer& layer : layers_) {
    weights += layer.matrix_weights(config_.experts.per_row);
  }
  return 2 * weights;
}

float Decoder::scale_of(double scale, const PackedMatrix& table) const {
  const auto exact = static_cast<float>(scale);
  // Models of bf16 were trained with a factor of bf16.
  return table.kind == Dtype::bf16 && !compute_fp32_ ? bf16_to_float(float_to_bf16(exact)) : exact;
}

Result<Scratch> Decoder::make_scratch(std::uint32_t rows, MemoryLedger& ledger) const {
  ScratchShape shape{.rows = rows, .hidden = config_.hidden_size};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerPlan& plan = plans_.layers[i];
    const LayerShape& layer = plan.shape;
    shape.qkv = std::max(shape.qkv, plan.projected_width());
    shape.attended = std::max(shape.attended, plan.inner_width());
    if (!attends(plan.kind)) shape.convolved = std::max(shape.convolved, plan.recurrent.channels);
    shape.intermediate = std::max({shape.intermediate, layer.intermediate, layer.layer_input});
    shape.branches |= layers_[i].attention_out_norm.gain != nullptr;
    shape.experts = std::max(shape.experts, layer.experts);
    shape.experts_per_row = std::max(shape.experts_per_row, layer.experts_per_row);
    shape.expert_intermediate = std::max(shape.expert_intermediate, layer.expert_intermediate);
    shape.layer_inputs = layer.layer_inputs;
  }
  return Scratch::create(shape, ledger);
}

// A row of its own for every layer: what the token's embedding gives, and what the stream at the
// beginning gives, in equal parts.
void Decoder::fill_layer_inputs(Device& device, const StepTable& step, Scratch& scratch) const {
  const std::uint32_t size = config_.per_layer_input_size;
  const std::uint32_t width = config_.layers * size;
  const std::size_t count = std::size_t{step.rows} * width;
  float* inputs = scratch.layer_inputs.as<float>();
  float* tokens = scratch.layer_input_tokens.as<float>();
  device.embed(step, layer_embedding_, scale_of(std::sqrt(size), layer_embedding_), tokens);
  const LinearSegment projection[] = {{layer_projection_, 0}};
  device.linear(projection, compute_fp32_, scratch.hidden.as<float>(), config_.hidden_size,
                step.rows, inputs, width, false);
  device.scale(inputs, count, 1.0f / std::sqrt(static_cast<float>(config_.hidden_size)));
  device.rms_norm(inputs, size, step.rows * config_.layers, size, layer_input_norm_, inputs, size);
  device.add(tokens, width, step.rows, width, inputs, width);
  device.scale(inputs, count, std::sqrt(0.5f));
}

Status Decoder::forward(Device& device, StepTable& step, Scratch& scratch,
                        std::span<const std::uint32_t> tap_layers,
                        const std::atomic<bool>* cancel) const {
  const std::uint32_t hidden = config_.hidden_size;
  float* stream = scratch.hidden.as<float>();
  const PassWatch watch(device, cancel);
  for (std::uint32_t i = 0; i < ropes_.size(); ++i) ropes_[i].fill(step, i);
  device.embed(step, embedding_, embedding_scale(), stream);
  if (config_.per_layer_input_size != 0) fill_layer_inputs(device, step, scratch);
  std::size_t tap = 0;
  for (std::uint32_t i = 0; i < config_.layers; ++i) {
    if (watch.cancelled()) return Status(Code::cancelled, "cancelled during a pass");
    const LayerPlan& plan = plans_.layers[i];
    if (attends(plan.kind)) {
      run_attention(
          device, step, scratch, layers_[i], plan.shape,
          {.kv = plan.kv, .own_kv = plan.own_kv, .rotary = plan.rotary, .window = plan.window},
          compute_fp32_);
    } else {
      run_recurrent(device, step, scratch, layers_[i].attention_norm, layers_[i].recurrent,
                    plan.recurrent, hidden, compute_fp32_);
    }
    run_feed_forward(device, step, scratch, layers_[i], plan.shape, compute_fp32_);
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
  if (config_.final_logit_softcap != 0.0) {
    device.softcap(logits, std::size_t{rows} * config_.vocab_size,
                   static_cast<float>(config_.final_logit_softcap));
  }
}

}  // namespace drafthouse
