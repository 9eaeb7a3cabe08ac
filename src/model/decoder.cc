#include "model/decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace drafthouse {
namespace {

using Maker = std::unique_ptr<Decoder> (*)(const ModelConfig&, Rope, bool);

struct Family {
  const char* name;
  Maker make;
};
constexpr Family kFamilies[] = {{"llama", make_llama}, {"qwen3", make_qwen3}};

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::load(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32,
                                               ThreadPool& pool, MemoryLedger& ledger,
                                               const LoadProgress& progress,
                                               const std::atomic<bool>* cancel) {
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
    WeightLoader loader(source);
    decoder->declare(loader);
    Result<Buffer> memory = loader.load(pool, ledger, progress, cancel);
    if (!memory.ok()) return memory.status();
    decoder->memory_ = std::move(memory).value();
    return decoder;
  }
  return Status(Code::unsupported,
                fmt::format("{}: no target family \"{}\" is built; known: llama, qwen3",
                            source.label(), config.family));
}

void Decoder::declare_shared(WeightLoader& loader) {
  const ModelConfig& c = config_;
  const auto norm = [&](NormWeights& out, const std::string& name, std::uint32_t width) {
    out.eps = static_cast<float>(c.rms_eps);
    loader.vector(&out.gain, name, width);
  };
  const std::uint32_t q_width = c.heads * c.head_dim;
  const std::uint32_t kv_width = c.kv_heads * c.head_dim;
  loader.matrix(&embedding_, "model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  layers_.resize(c.layers);
  for (std::uint32_t i = 0; i < c.layers; ++i) {
    DecoderLayer& layer = layers_[i];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    // GGUF keeps the query and key rows of llama files in pairs (2i, 2i + 1) of a head; we rotate
    // (i, i + half).
    RowOrder q_order;
    RowOrder k_order;
    if (c.interleaved_rope_rows) {
      const auto half_split = [&](std::uint32_t rows) {
        RowOrder order(rows);
        const std::uint32_t half = c.head_dim / 2;
        for (std::uint32_t r = 0; r < rows; ++r) {
          const std::uint32_t d = r % c.head_dim;
          order[r] = r - d + 2 * (d % half) + d / half;
        }
        return order;
      };
      q_order = half_split(q_width);
      k_order = half_split(kv_width);
    }
    norm(layer.attention_norm, prefix + "input_layernorm.weight", c.hidden_size);
    loader.matrix(&layer.q, prefix + "self_attn.q_proj.weight", q_width, c.hidden_size,
                  std::move(q_order));
    loader.matrix(&layer.k, prefix + "self_attn.k_proj.weight", kv_width, c.hidden_size,
                  std::move(k_order));
    loader.matrix(&layer.v, prefix + "self_attn.v_proj.weight", kv_width, c.hidden_size);
    loader.matrix(&layer.o, prefix + "self_attn.o_proj.weight", c.hidden_size, q_width);
    norm(layer.mlp_norm, prefix + "post_attention_layernorm.weight", c.hidden_size);
    loader.matrix(&layer.gate, prefix + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size);
    loader.matrix(&layer.up, prefix + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size);
    loader.matrix(&layer.down, prefix + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size);
  }
  norm(final_norm_, "model.norm.weight", c.hidden_size);
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
  for (const DecoderLayer& l : layers_) {
    for (const PackedMatrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) bytes += m->bytes();
  }
  return bytes;
}

std::uint64_t Decoder::operations_per_row() const {
  std::uint64_t weights = std::uint64_t{head().outputs} * head().inputs;
  for (const DecoderLayer& l : layers_) {
    for (const PackedMatrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) {
      weights += std::uint64_t{m->outputs} * m->inputs;
    }
  }
  return 2 * weights;
}

Result<Scratch> Decoder::make_scratch(std::uint32_t rows, MemoryLedger& ledger) const {
  return Scratch::create(rows, config_.hidden_size,
                         (config_.heads + 2 * config_.kv_heads) * config_.head_dim,
                         config_.heads * config_.head_dim, config_.intermediate_size, ledger);
}

void Decoder::attention_block(Device& device, const StepTable& step, Scratch& scratch,
                              std::uint32_t index) const {
  const DecoderLayer& layer = layers_[index];
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t q_width = config_.heads * config_.head_dim;
  const std::uint32_t kv_width = config_.kv_heads * config_.head_dim;
  const std::size_t qkv_width = q_width + 2 * kv_width;
  float* qkv = scratch.qkv.as<float>();
  float* normed = scratch.normed.as<float>();
  float* attended = scratch.attended.as<float>();

  device.rms_norm(scratch.hidden.as<float>(), hidden, step.rows, hidden, layer.attention_norm,
                  normed, hidden);
  const LinearSegment segments[] = {
      {layer.q, 0}, {layer.k, q_width}, {layer.v, q_width + kv_width}};
  device.linear(segments, compute_fp32_, normed, hidden, step.rows, qkv, qkv_width, false);
  device.rope_kv(step, RopeKvJob{.kv = kv_layout(index),
                                 .heads = config_.heads,
                                 .cos = step.cos.data(),
                                 .sin = step.sin.data(),
                                 .q_norm = layer.q_norm,
                                 .k_norm = layer.k_norm,
                                 .q = qkv,
                                 .k = qkv + q_width,
                                 .v = qkv + q_width + kv_width,
                                 .stride = qkv_width});
  device.attention(step, AttentionJob{.kv = kv_layout(index),
                                      .heads = config_.heads,
                                      .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                                      .q = qkv,
                                      .q_stride = qkv_width,
                                      .out = attended});
  const LinearSegment out[] = {{layer.o, 0}};
  device.linear(out, compute_fp32_, attended, q_width, step.rows, scratch.hidden.as<float>(), hidden,
                true);
}

void Decoder::mlp_block(Device& device, const StepTable& step, Scratch& scratch,
                        const DecoderLayer& layer) const {
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t width = config_.intermediate_size;
  float* normed = scratch.normed.as<float>();
  float* gate_up = scratch.gate_up.as<float>();
  float* gated = scratch.gated.as<float>();
  device.rms_norm(scratch.hidden.as<float>(), hidden, step.rows, hidden, layer.mlp_norm, normed,
                  hidden);
  const LinearSegment segments[] = {{layer.gate, 0}, {layer.up, width}};
  device.linear(segments, compute_fp32_, normed, hidden, step.rows, gate_up, std::size_t{2} * width,
                false);
  device.silu_mul(gate_up, step.rows, width, gated);
  const LinearSegment down[] = {{layer.down, 0}};
  device.linear(down, compute_fp32_, gated, width, step.rows, scratch.hidden.as<float>(), hidden,
                true);
}

Status Decoder::forward(Device& device, StepTable& step, Scratch& scratch, const TapRequest& taps,
                        float* logits, const std::atomic<bool>* cancel) const {
  const std::uint32_t hidden = config_.hidden_size;
  float* stream = scratch.hidden.as<float>();
  rope_.fill(step);
  device.embed(step, embedding_, 1.0f, stream);
  std::size_t tap = 0;
  for (std::uint32_t i = 0; i < config_.layers; ++i) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return Status(Code::cancelled, "cancelled during a pass");
    }
    attention_block(device, step, scratch, i);
    mlp_block(device, step, scratch, layers_[i]);
    if (taps.out != nullptr && tap < taps.layers.size() && taps.layers[tap] == i) {
      const std::size_t width = taps.layers.size() * hidden;
      for (std::uint32_t row = 0; row < step.rows; ++row) {
        std::memcpy(taps.out + row * width + tap * hidden, stream + std::size_t{row} * hidden,
                    hidden * sizeof(float));
      }
      ++tap;
    }
  }
  // Rows that want logits are gathered to the front; they ascend, so none is overwritten unread.
  float* normed = scratch.normed.as<float>();
  const auto wanted = static_cast<std::uint32_t>(step.logit_rows.size());
  for (std::uint32_t i = 0; i < wanted; ++i) {
    device.rms_norm(stream + std::size_t{step.logit_rows[i]} * hidden, hidden, 1, hidden,
                    final_norm_, normed + std::size_t{i} * hidden, hidden);
  }
  if (wanted > 0) project_head(device, normed, hidden, wanted, logits);
  return {};
}

void Decoder::project_head(Device& device, const float* normed, std::size_t stride,
                           std::uint32_t rows, float* logits) const {
  const LinearSegment segments[] = {{head(), 0}};
  device.linear(segments, compute_fp32_, normed, stride, rows, logits, config_.vocab_size, false);
}

}  // namespace drafthouse
