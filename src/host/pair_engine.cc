#include "host/pair_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace drafthouse {
namespace {

// Positions whose pages are counted before a model is loaded.
constexpr std::size_t kPositionsCounted = 1024;
constexpr std::size_t kRowsCounted = 512;
constexpr std::size_t kLogitRowsCounted = 64;
// Pages come in slabs of whole huge pages.
constexpr std::size_t kSlabBytes = std::size_t{2} << 20;
// Of the device: attention in parts, and what is rounded up.
constexpr std::size_t kDeviceBytes = std::size_t{1} << 20;

std::size_t slabs(std::size_t bytes) { return (bytes + kSlabBytes - 1) / kSlabBytes * kSlabBytes; }

SchedulerParts with_background(SchedulerParts parts, Background* background) {
  parts.background = [background](std::function<void()> work) {
    background->post(std::move(work));
  };
  return parts;
}

}  // namespace

void ModelTotals::add(const SchedulerCounters& counters) {
  const std::lock_guard<std::mutex> lock(lock_);
  counters_ += counters;
}

SchedulerCounters ModelTotals::counters() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return counters_;
}

void ModelTotals::set_identity(const CacheIdentity& identity) {
  const std::lock_guard<std::mutex> lock(lock_);
  identity_ = identity;
}

CacheIdentity ModelTotals::identity() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return identity_;
}

Result<std::shared_ptr<PairEngine>> PairEngine::load(const ModelSpec& spec, const HostParts& parts,
                                                     std::shared_ptr<ModelTotals> totals,
                                                     const ProgressFn& progress,
                                                     const std::atomic<bool>* cancel) {
  EngineOptions options;
  options.target = spec.target;
  options.draft = spec.draft;
  options.compute_fp32 = spec.compute_fp32;
  options.context = spec.context;
  options.draft_window = spec.draft_window;
  options.draft_sink = spec.draft_sink;
  options.isa = spec.isa;
  options.packed_directory = spec.packed_directory;
  options.sequences = spec.sequences;
  options.log = parts.log;
  options.progress = progress;
  options.cancel = cancel;
  SharedParts shared;
  shared.budget = parts.budget;
  shared.threads = parts.threads;
  shared.weights = parts.weights;
  shared.caches = parts.caches;
  shared.cache = spec.cache;
  shared.label = spec.label;
  Result<std::unique_ptr<Engine::Internals>> pair = load_pair(options, shared);
  if (!pair.ok()) return pair.status();
  totals->set_identity(pair.value()->identity);
  std::shared_ptr<PairEngine> engine(
      new PairEngine(std::move(pair).value(), parts, std::move(totals)));
  SchedulerLimits limits;
  limits.queue = std::max(1u, spec.queue);
  engine->thread_ = std::make_shared<EngineThread>(
      with_background(engine->pair_->scheduler_parts(), parts.background), limits, *parts.gate,
      spec.weight);
  return engine;
}

PairEngine::PairEngine(std::unique_ptr<Engine::Internals> pair, const HostParts& parts,
                       std::shared_ptr<ModelTotals> totals)
    : caches_(*parts.caches), totals_(std::move(totals)), pair_(std::move(pair)) {}

PairEngine::~PairEngine() {
  if (thread_ == nullptr) return;
  thread_->stop(Status(Code::closed, "the model has been unloaded"));
  totals_->add(thread_->counters());
}

Result<std::vector<std::uint32_t>> PairEngine::encode(const SubmitRequest& request) const {
  if (!request.prompt_ids.empty()) return request.prompt_ids;
  if (!request.prompt.empty()) return pair_->encode(request.prompt, true);
  return pair_->encode_chat(request.messages, request.chat);
}

std::shared_ptr<CacheManager> PairEngine::cache() const {
  const std::lock_guard<std::mutex> lock(lease_lock_);
  return pair_->cache.manager();
}

Status PairEngine::reconfigure(const CacheConfig& config) {
  const std::lock_guard<std::mutex> lock(lease_lock_);
  Result<CacheLease> lease = caches_.resolve(pair_->identity, config, pair_->state, &pair_->cache);
  if (!lease.ok()) return lease.status();
  pair_->cache = std::move(lease).value();
  return {};
}

std::size_t PairEngine::shared_weight_bytes() const {
  std::size_t bytes = 0;
  if (pair_->target_weights.use_count() > 1) bytes += pair_->target_weights->ledger.total();
  if (pair_->draft != nullptr && pair_->draft_weights.use_count() > 1)
    bytes += pair_->draft_weights->ledger.total();
  return bytes;
}

std::size_t PairEngine::exclusive_bytes() const {
  std::size_t bytes = pair_->ledger.total();
  if (pair_->target_weights.use_count() == 1) bytes += pair_->target_weights->ledger.total();
  if (pair_->draft != nullptr && pair_->draft_weights.use_count() == 1)
    bytes += pair_->draft_weights->ledger.total();
  return bytes;
}

std::vector<LedgerRow> PairEngine::ledger(const std::string& model) const {
  std::vector<LedgerRow> rows;
  const auto add = [&](const MemoryLedger& ledger) {
    for (std::size_t i = 0; i < kMemoryTags; ++i) {
      const auto tag = static_cast<MemoryTag>(i);
      if (ledger.bytes(tag) == 0) continue;
      rows.push_back({model, std::string(name_of(tag)), ledger.bytes(tag)});
    }
  };
  add(pair_->ledger);
  if (pair_->target_weights.use_count() == 1) add(pair_->target_weights->ledger);
  if (pair_->draft != nullptr && pair_->draft_weights.use_count() == 1)
    add(pair_->draft_weights->ledger);
  return rows;
}

Status PairEngine::release(bool keep_cache, double deadline_s) {
  (void)deadline_s;
  const std::lock_guard<std::mutex> lock(lease_lock_);
  pair_->cache.release();
  return keep_cache ? Status() : caches_.shutdown(pair_->identity);
}

Result<MemoryNeed> estimate_pair(const ModelSpec& spec, const WeightStore& weights) {
  Result<Checkpoint> target = Checkpoint::open(spec.target);
  if (!target.ok()) return target.status();
  Result<ModelConfig> config = target.value().model_config();
  if (!config.ok()) return config.status();
  const ModelConfig& c = config.value();
  const std::size_t value_bytes = spec.compute_fp32 ? 4 : 2;
  MemoryNeed need;
  const auto kept = [&](const Checkpoint& checkpoint, auto find) {
    return find(weights_key(checkpoint, weights_how(spec.compute_fp32))) != nullptr;
  };
  if (!kept(target.value(), [&](const std::string& key) { return weights.target(key); })) {
    need.weights += target.value().bytes();
  }
  std::size_t widest = 0;
  std::size_t packed = c.hidden_size;  // inputs of a product, rounded
  for (std::uint32_t l = 0; l < c.layers; ++l) {
    const LayerConfig layer = c.layer(l);
    std::size_t positions = layer.kv_source ? 0 : kPositionsCounted;
    if (layer.kind == LayerKind::sliding_attention) {
      positions = std::min<std::size_t>(positions, c.sliding_window + 2 * kPageTokens);
    }
    need.pages += positions * 2 * layer.kv_heads * layer.head_dim * value_bytes;
    const std::size_t experts =
        layer.experts ? c.experts.per_row * (c.hidden_size + 3 * c.experts.intermediate_size) : 0;
    packed = std::max<std::size_t>(
        {packed, layer.intermediate_size, std::size_t{layer.heads} * layer.head_dim});
    widest = std::max<std::size_t>(widest, 2 * (layer.heads + layer.kv_heads) * layer.head_dim +
                                               3 * layer.intermediate_size + experts);
  }
  const std::size_t row =
      2 * c.hidden_size + widest + 2 * std::size_t{c.layers} * c.per_layer_input_size;
  need.pages = slabs(need.pages);
  need.scratch += kDeviceBytes + kRowsCounted * (row + packed) * sizeof(float) +
                  kLogitRowsCounted * c.vocab_size * sizeof(float);
  if (spec.draft.empty()) return need;

  Result<Checkpoint> draft = Checkpoint::open(spec.draft);
  if (!draft.ok()) return draft.status();
  Result<DraftConfig> draft_config = draft.value().draft_config();
  if (!draft_config.ok()) return draft_config.status();
  const DraftConfig& d = draft_config.value();
  if (!kept(draft.value(), [&](const std::string& key) { return weights.draft(key); })) {
    need.weights += draft.value().bytes();
  }
  const std::size_t kv = std::size_t{d.layers} * 2 * d.kv_heads * d.head_dim;
  const std::size_t blocks = std::size_t{spec.sequences} * kPageTokens * kv * value_bytes;
  std::size_t kept_positions = kPositionsCounted;
  if (spec.draft_window != 0) {
    const auto context = DraftContext::of(spec.draft_window, spec.draft_sink, d.sliding_window);
    kept_positions = std::min<std::size_t>(
        kept_positions, std::size_t{context.window} + context.sink + 2 * kPageTokens);
  }
  need.pages += slabs(kept_positions * kv * value_bytes) + blocks;
  const std::size_t draft_rows =
      std::max<std::size_t>(DFlashDraft::kProjectRows, std::size_t{spec.sequences} * d.block_size);
  const std::size_t draft_row = 2 * d.hidden_size +
                                2 * std::size_t{d.heads + d.kv_heads} * d.head_dim +
                                4 * std::size_t{d.intermediate_size};
  const std::size_t taps = kRowsCounted * d.target_layer_ids.size() * c.hidden_size;
  need.scratch += (taps + draft_rows * draft_row + DFlashDraft::kProjectRows * kv) * sizeof(float);
  return need;
}

}  // namespace drafthouse
