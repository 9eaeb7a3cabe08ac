#include "model/dflash_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace drafthouse {

DFlashDraft::DFlashDraft(const DraftConfig& config, Rope rope, std::uint32_t tap_width,
                         bool compute_fp32)
    : config_(config),
      rope_(std::move(rope)),
      tap_width_(tap_width),
      compute_fp32_(compute_fp32),
      layers_(config.layers),
      places_(config.layers) {
  const KvLayout shape{.kind = compute_fp32 ? KvKind::f32 : KvKind::bf16,
                       .kv_heads = config.kv_heads,
                       .head_dim = config.head_dim};
  for (const LayerAttention type : {LayerAttention::full, LayerAttention::sliding}) {
    std::uint32_t index = 0;
    for (std::uint32_t l = 0; l < config.layers; ++l) {
      if (config.layer_types[l] != type) continue;
      places_[l] = {static_cast<std::uint32_t>(groups_.size()), index++};
    }
    if (index == 0) continue;
    groups_.push_back({index * shape.layer_bytes(),
                       type == LayerAttention::sliding ? config.sliding_window : 0});
    block_page_bytes_ = std::max(block_page_bytes_, groups_.back().page_bytes);
  }
}

Result<std::unique_ptr<DFlashDraft>> DFlashDraft::load(
    const DraftConfig& config, std::uint32_t target_hidden_size, const WeightSource& source,
    bool compute_fp32, ThreadPool& pool, MemoryLedger& ledger, const LoadProgress& progress,
    const std::atomic<bool>* cancel) {
  if (config.attention_bias) {
    return Status(Code::unsupported,
                  fmt::format("{}: a draft with attention biases is not built", source.label()));
  }
  Result<Rope> rope = Rope::create(config.rope, config.head_dim);
  if (!rope.ok()) return rope.status();
  const auto tap_width =
      static_cast<std::uint32_t>(config.target_layer_ids.size()) * target_hidden_size;
  std::unique_ptr<DFlashDraft> draft(
      new DFlashDraft(config, std::move(rope).value(), tap_width, compute_fp32));
  WeightLoader loader(source);
  draft->declare(loader);
  Result<Buffer> memory = loader.load(pool, ledger, progress, cancel);
  if (!memory.ok()) return memory.status();
  draft->memory_ = std::move(memory).value();
  const std::uint32_t kv_width = config.kv_heads * config.head_dim;
  for (std::uint32_t l = 0; l < config.layers; ++l) {
    draft->context_segments_.push_back({draft->layers_[l].k, 2 * l * kv_width});
    draft->context_segments_.push_back({draft->layers_[l].v, (2 * l + 1) * kv_width});
  }
  return draft;
}

void DFlashDraft::declare(WeightLoader& loader) {
  const DraftConfig& c = config_;
  const auto norm = [&](NormWeights& out, const std::string& name, std::uint32_t width) {
    out.eps = static_cast<float>(c.rms_eps);
    loader.vector(&out.gain, name, width);
  };
  const std::uint32_t q_width = c.heads * c.head_dim;
  const std::uint32_t kv_width = c.kv_heads * c.head_dim;
  loader.matrix(&fc_, "fc.weight", c.hidden_size, tap_width_);
  norm(context_norm_, "hidden_norm.weight", c.hidden_size);
  norm(final_norm_, "norm.weight", c.hidden_size);
  for (std::uint32_t l = 0; l < c.layers; ++l) {
    DecoderLayer& layer = layers_[l];
    const std::string prefix = fmt::format("layers.{}.", l);
    norm(layer.attention_norm, prefix + "input_layernorm.weight", c.hidden_size);
    loader.matrix(&layer.q, prefix + "self_attn.q_proj.weight", q_width, c.hidden_size);
    loader.matrix(&layer.k, prefix + "self_attn.k_proj.weight", kv_width, c.hidden_size);
    loader.matrix(&layer.v, prefix + "self_attn.v_proj.weight", kv_width, c.hidden_size);
    loader.matrix(&layer.o, prefix + "self_attn.o_proj.weight", c.hidden_size, q_width);
    norm(layer.q_norm, prefix + "self_attn.q_norm.weight", c.head_dim);
    norm(layer.k_norm, prefix + "self_attn.k_norm.weight", c.head_dim);
    norm(layer.mlp_norm, prefix + "post_attention_layernorm.weight", c.hidden_size);
    loader.matrix(&layer.gate, prefix + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size);
    loader.matrix(&layer.up, prefix + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size);
    loader.matrix(&layer.down, prefix + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size);
  }
}

KvLayout DFlashDraft::kv_layout(std::uint32_t layer) const {
  KvLayout layout{.kind = compute_fp32_ ? KvKind::f32 : KvKind::bf16,
                  .group = places_[layer].group,
                  .kv_heads = config_.kv_heads,
                  .head_dim = config_.head_dim};
  layout.layer_offset = places_[layer].index * layout.layer_bytes();
  return layout;
}

std::size_t DFlashDraft::weight_bytes() const {
  std::size_t bytes = fc_.bytes();
  for (const DecoderLayer& l : layers_) {
    for (const PackedMatrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) bytes += m->bytes();
  }
  return bytes;
}

Result<DFlashDraft::Workspace> DFlashDraft::make_workspace(std::uint32_t sequences,
                                                           MemoryLedger& ledger) const {
  const std::uint32_t rows = std::max(kProjectRows, sequences * config_.block_size);
  const std::uint32_t kv_width = config_.kv_heads * config_.head_dim;
  Workspace work;
  Result<Scratch> scratch =
      Scratch::create(rows, config_.hidden_size, config_.heads * config_.head_dim + 2 * kv_width,
                      config_.heads * config_.head_dim, config_.intermediate_size, ledger);
  if (!scratch.ok()) return scratch.status();
  work.scratch = std::move(scratch).value();
  Result<Buffer> context =
      Buffer::allocate(std::size_t{kProjectRows} * config_.layers * 2 * kv_width * sizeof(float),
                       MemoryTag::activations, ledger);
  if (!context.ok()) return context.status();
  work.context_kv = std::move(context).value();
  Result<Buffer> pages =
      Buffer::allocate(sequences * block_page_bytes_, MemoryTag::draft_pages, ledger);
  if (!pages.ok()) return pages.status();
  work.block_pages = std::move(pages).value();
  return std::move(work);
}

void DFlashDraft::project(Device& device, StepTable& step, Workspace& work,
                          const float* taps) const {
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t kv_width = config_.kv_heads * config_.head_dim;
  const std::size_t stride = std::size_t{config_.layers} * 2 * kv_width;
  float* fused = work.scratch.hidden.as<float>();
  float* context = work.scratch.normed.as<float>();
  float* kv = work.context_kv.as<float>();
  rope_.fill(step);
  const LinearSegment fc[] = {{fc_, 0}};
  device.linear(fc, compute_fp32_, taps, tap_width_, step.rows, fused, hidden, false);
  device.rms_norm(fused, hidden, step.rows, hidden, context_norm_, context, hidden);
  device.linear(context_segments_, compute_fp32_, context, hidden, step.rows, kv, stride, false);
  for (std::uint32_t l = 0; l < config_.layers; ++l) {
    device.rope_kv(step, RopeKvJob{.kv = kv_layout(l),
                                   .cos = step.cos.data(),
                                   .sin = step.sin.data(),
                                   .k_norm = layers_[l].k_norm,
                                   .k = kv + 2 * l * kv_width,
                                   .v = kv + (2 * l + 1) * kv_width,
                                   .stride = stride});
  }
}

void DFlashDraft::block_attention(Device& device, const StepTable& step, Workspace& work,
                                  std::uint32_t index) const {
  const DecoderLayer& layer = layers_[index];
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t q_width = config_.heads * config_.head_dim;
  const std::uint32_t kv_width = config_.kv_heads * config_.head_dim;
  const std::size_t qkv_width = q_width + 2 * kv_width;
  float* stream = work.scratch.hidden.as<float>();
  float* normed = work.scratch.normed.as<float>();
  float* qkv = work.scratch.qkv.as<float>();
  float* attended = work.scratch.attended.as<float>();

  device.rms_norm(stream, hidden, step.rows, hidden, layer.attention_norm, normed, hidden);
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
                                 .stride = qkv_width,
                                 .block_pages = work.block_pages.data(),
                                 .block_page_bytes = block_page_bytes_});
  const bool sliding = config_.layer_types[index] == LayerAttention::sliding;
  device.attention(
      step, AttentionJob{.kv = kv_layout(index),
                         .heads = config_.heads,
                         .window = sliding ? config_.sliding_window : 0,
                         .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                         .q = qkv,
                         .q_stride = qkv_width,
                         .out = attended,
                         .block_pages = work.block_pages.data(),
                         .block_page_bytes = block_page_bytes_,
                         .causal_in_block = config_.causal_in_block(index)});
  const LinearSegment out[] = {{layer.o, 0}};
  device.linear(out, compute_fp32_, attended, q_width, step.rows, stream, hidden, true);
}

void DFlashDraft::block_mlp(Device& device, const StepTable& step, Workspace& work,
                            const DecoderLayer& layer) const {
  const std::uint32_t hidden = config_.hidden_size;
  const std::uint32_t width = config_.intermediate_size;
  float* stream = work.scratch.hidden.as<float>();
  float* normed = work.scratch.normed.as<float>();
  float* gate_up = work.scratch.gate_up.as<float>();
  float* gated = work.scratch.gated.as<float>();
  device.rms_norm(stream, hidden, step.rows, hidden, layer.mlp_norm, normed, hidden);
  const LinearSegment segments[] = {{layer.gate, 0}, {layer.up, width}};
  device.linear(segments, compute_fp32_, normed, hidden, step.rows, gate_up, std::size_t{2} * width,
                false);
  device.silu_mul(gate_up, step.rows, width, gated);
  const LinearSegment down[] = {{layer.down, 0}};
  device.linear(down, compute_fp32_, gated, width, step.rows, stream, hidden, true);
}

Status DFlashDraft::propose(Device& device, const Decoder& target, StepTable& step, Workspace& work,
                            float* logits, const std::atomic<bool>* cancel) const {
  const std::uint32_t hidden = config_.hidden_size;
  float* stream = work.scratch.hidden.as<float>();
  float* normed = work.scratch.normed.as<float>();
  rope_.fill(step);
  device.embed(step, target.embedding(),
               static_cast<float>(config_.input_embedding_scale.value_or(1.0)), stream);
  for (std::uint32_t l = 0; l < config_.layers; ++l) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return Status(Code::cancelled, "cancelled during a draft pass");
    }
    block_attention(device, step, work, l);
    block_mlp(device, step, work, layers_[l]);
  }
  // The multiplier and the soft cap are increasing functions, so the proposals do not need them.
  const auto wanted = static_cast<std::uint32_t>(step.logit_rows.size());
  for (std::uint32_t i = 0; i < wanted; ++i) {
    device.rms_norm(stream + std::size_t{step.logit_rows[i]} * hidden, hidden, 1, hidden,
                    final_norm_, normed + std::size_t{i} * hidden, hidden);
  }
  if (wanted > 0) target.project_head(device, normed, hidden, wanted, logits);
  return {};
}

}  // namespace drafthouse
