#include "model/dflash_draft.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/draft_vocabulary.h"

namespace drafthouse {

DFlashDraft::DFlashDraft(const DraftConfig& config, Rope rope, std::uint32_t tap_width,
                         bool compute_fp32)
    : config_(config),
      shape_{.hidden = config.hidden_size,
             .heads = config.heads,
             .kv_heads = config.kv_heads,
             .head_dim = config.head_dim,
             .intermediate = config.intermediate_size,
             .eps = static_cast<float>(config.rms_eps)},
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
    groups_.push_back(
        {index * shape.layer_bytes(), type == LayerAttention::sliding ? config.sliding_window : 0});
    block_page_bytes_ = std::max(block_page_bytes_, groups_.back().page_bytes);
  }
}

Result<std::unique_ptr<DFlashDraft>> DFlashDraft::make(const DraftConfig& config,
                                                       std::uint32_t target_hidden_size,
                                                       const WeightSource& source,
                                                       bool compute_fp32) {
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
  if (Status s = draft->shape_.check(source.label()); !s.ok()) return s;
  return draft;
}

Result<std::uint64_t> DFlashDraft::bytes_to_pack(const DraftConfig& config,
                                                 std::uint32_t target_hidden_size,
                                                 const WeightSource& source, bool compute_fp32) {
  Result<std::unique_ptr<DFlashDraft>> draft =
      make(config, target_hidden_size, source, compute_fp32);
  if (!draft.ok()) return draft.status();
  WeightLoader loader(source);
  draft.value()->declare(loader);
  if (!loader.status().ok()) return loader.status();
  return loader.bytes_packed();
}

Result<std::unique_ptr<DFlashDraft>> DFlashDraft::load(
    const DraftConfig& config, std::uint32_t target_hidden_size, const WeightSource& source,
    bool compute_fp32, ThreadPool& pool, MemoryLedger& ledger, const LoadProgress& progress,
    const std::atomic<bool>* cancel) {
  Result<std::unique_ptr<DFlashDraft>> made =
      make(config, target_hidden_size, source, compute_fp32);
  if (!made.ok()) return made;
  DFlashDraft* draft = made.value().get();
  WeightLoader loader(source);
  draft->declare(loader);
  Result<Buffer> memory = loader.load(pool, ledger, progress, cancel);
  if (!memory.ok()) return memory.status();
  draft->memory_ = std::move(memory).value();
  Result<std::vector<std::uint32_t>> ids = read_draft_ids(config, source);
  if (!ids.ok()) return ids.status();
  draft->ids_ = std::move(ids).value();
  draft->weights_digest_ = loader.digest();
  const std::uint32_t kv_width = draft->shape_.kv_width();
  for (std::uint32_t l = 0; l < config.layers; ++l) {
    draft->context_segments_.push_back({draft->layers_[l].k, 2 * l * kv_width});
    draft->context_segments_.push_back({draft->layers_[l].v, (2 * l + 1) * kv_width});
  }
  return made;
}

void DFlashDraft::declare(WeightLoader& loader) {
  const auto norm = [&](NormWeights& out, const char* name) {
    out.eps = shape_.eps;
    loader.vector(&out.gain, name, shape_.hidden);
  };
  loader.matrix(&fc_, "fc.weight", shape_.hidden, tap_width_);
  norm(context_norm_, "hidden_norm.weight");
  norm(final_norm_, "norm.weight");
  if (config_.own_embedding) {
    loader.matrix(&embedding_, "embed_tokens.weight", config_.vocab_size, shape_.hidden);
  }
  if (config_.own_head) {
    loader.matrix(&head_, "lm_head.weight",
                  config_.draft_vocab_size != 0 ? config_.draft_vocab_size : config_.vocab_size,
                  shape_.hidden);
  }
  const Dflash2Config& second = config_.dflash2;
  const auto convolution = [&](BlockConvolution& out, const std::string& name) {
    if (!config_.is_dflash2()) return;
    out.kernel = second.conv_kernel;
    out.groups = shape_.hidden / second.conv_group;
    out.declare(loader, name, shape_.hidden);
  };
  if (config_.is_dflash2()) {
    selector_.declare(loader, second, config_.vocab_size, shape_.hidden);
  }
  for (std::uint32_t l = 0; l < config_.layers; ++l) {
    const std::string prefix = fmt::format("layers.{}.", l);
    layers_[l].declare_attention(loader, prefix, shape_, {.qk_norm = true});
    layers_[l].declare_mlp(loader, prefix, shape_);
    convolution(layers_[l].attention_conv, prefix + "attention_conv.");
    convolution(layers_[l].mlp_conv, prefix + "mlp_conv.");
  }
  loader.absent(fmt::format("layers.{}.input_layernorm.weight", config_.layers),
                "the configuration has fewer layers");
}

KvLayout DFlashDraft::kv_layout(std::uint32_t layer) const {
  KvLayout layout{.kind = compute_fp32_ ? KvKind::f32 : KvKind::bf16,
                  .group = places_[layer].group,
                  .kv_heads = config_.kv_heads,
                  .head_dim = config_.head_dim};
  layout.layer_offset = places_[layer].index * layout.layer_bytes();
  return layout;
}

void DFlashDraft::project_head(Device& device, const Decoder& target, const float* normed,
                               std::uint32_t rows, float* logits) const {
  const std::uint32_t vocabulary = target.config().vocab_size;
  const PackedMatrix& head = config_.own_head ? head_ : target.head();
  const LinearSegment segments[] = {{head, 0}};
  device.linear(segments, compute_fp32_, normed, shape_.hidden, rows, logits, vocabulary, false);
  // A cap of its own stands in place of the target's, which the draft was trained with otherwise.
  double cap = config_.final_logit_softcapping;
  if (cap == 0.0 && !config_.own_head) cap = target.config().final_logit_softcap;
  for (std::uint32_t row = 0; row < rows; ++row) {
    float* at = logits + std::size_t{row} * vocabulary;
    if (config_.output_multiplier != 1.0) {
      device.scale(at, head.outputs, static_cast<float>(config_.output_multiplier));
    }
    if (cap != 0.0) device.softcap(at, head.outputs, static_cast<float>(cap));
    if (!ids_.empty()) spread_logits(ids_, {at, vocabulary});
  }
}

void DFlashDraft::select_from(Device& device, Workspace& work, std::uint32_t rows) const {
  selector_.project(device, compute_fp32_, work.scratch.normed.as<float>(), rows, work.selector);
}

std::size_t DFlashDraft::weight_bytes() const {
  std::size_t bytes = fc_.bytes() + head_.bytes() + selector_.matrix_bytes();
  for (const DecoderLayer& layer : layers_) bytes += layer.matrix_bytes(0);
  return bytes;
}

Result<DFlashDraft::Workspace> DFlashDraft::make_workspace(std::uint32_t sequences,
                                                           MemoryLedger& ledger) const {
  const std::uint32_t rows = std::max(kProjectRows, sequences * config_.block_size);
  const std::uint32_t kv_width = shape_.kv_width();
  Workspace work;
  Result<Scratch> scratch = Scratch::create({.rows = rows,
                                             .hidden = shape_.hidden,
                                             .qkv = shape_.qkv_width(),
                                             .attended = shape_.q_width(),
                                             .intermediate = shape_.intermediate,
                                             .branches = config_.is_dflash2(),
                                             .coefficients = layers_[0].mlp_conv.coefficients()},
                                            ledger);
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
  if (config_.is_dflash2()) {
    Result<CandidateSelector::Workspace> selector =
        selector_.make_workspace(sequences * config_.block_size, ledger);
    if (!selector.ok()) return selector.status();
    work.selector = std::move(selector).value();
  }
  return work;
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
                                   .rotary = &step.rotary[0],
                                   .k_norm = layers_[l].k_norm,
                                   .k = kv + 2 * l * kv_width,
                                   .v = kv + (2 * l + 1) * kv_width,
                                   .stride = stride});
  }
}

Status DFlashDraft::propose(Device& device, const Decoder& target, StepTable& step, Workspace& work,
                            const DraftContext& context, const std::atomic<bool>* cancel) const {
  const PassWatch watch(device, cancel);
  rope_.fill(step);
  const bool own = config_.own_embedding;
  const float inherited = own ? 1.0f : target.embedding_scale();
  device.embed(step, own ? embedding_ : target.embedding(),
               config_.input_embedding_scale ? static_cast<float>(*config_.input_embedding_scale)
                                             : inherited,
               work.scratch.hidden.as<float>());
  for (std::uint32_t l = 0; l < config_.layers; ++l) {
    if (watch.cancelled()) return Status(Code::cancelled, "cancelled during a draft pass");
    const std::uint32_t window = groups_[places_[l].group].window;
    run_attention(device, step, work.scratch, layers_[l], shape_,
                  {.kv = kv_layout(l),
                   .window = context.reach(window),
                   .sink = context.sink_of(window),
                   .block_pages = work.block_pages.data(),
                   .block_page_bytes = block_page_bytes_,
                   .causal_in_block = config_.causal_in_block(l)},
                  compute_fp32_);
    run_feed_forward(device, step, work.scratch, layers_[l], shape_, compute_fp32_);
  }
  gather_normed(device, step, work.scratch, final_norm_, shape_.hidden);
  if (device.given_up()) return Status(Code::cancelled, "cancelled during a draft pass");
  return {};
}

}  // namespace drafthouse
