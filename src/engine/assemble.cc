#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/internals.h"
#include "engine/state_spec.h"
#include "turn/cost_measure.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kPrefillRows = 512;
constexpr std::uint32_t kSequencesMax = 256;
// A layer of one prefill pass does about this many operations at most, so that a cancellation,
// which is seen between layers, is seen soon on a slow machine too.
constexpr std::uint64_t kLayerOperations = 40'000'000'000;

Result<Isa> choose_isa(const std::string& name) {
  if (name.empty()) return best_isa();
  std::string known;
  for (const Isa isa : built_isas()) {
    if (name_of(isa) == name) {
      if (cpu_has(isa)) return isa;
      return Status(Code::unsupported,
                    fmt::format("this CPU cannot run the {} kernels; the best it has is {}", name,
                                name_of(best_isa())));
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(isa));
  }
  return Status(Code::invalid_argument,
                fmt::format("no kernels are named \"{}\"; built: {}", name, known));
}

std::uint32_t prefill_rows(const Decoder& target, const EngineOptions& options,
                           std::uint32_t context) {
  if (options.prefill_chunk != 0) return std::min(options.prefill_chunk, context);
  const std::uint64_t per_row = target.operations_per_row() / target.config().layers;
  const std::uint64_t rows = kLayerOperations / std::max<std::uint64_t>(1, per_row) / 64 * 64;
  return std::min(static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, 64, kPrefillRows)),
                  context);
}

// "q4_1+q8_0": kinds of the matrices, most bytes first.
std::string weight_kinds(const Decoder& target) {
  std::map<Dtype, std::size_t> bytes;
  bytes[target.head().kind] += target.head().bytes();
  for (const DecoderLayer& layer : target.layers()) {
    const auto add = [&](const PackedMatrix& matrix) { bytes[matrix.kind] += matrix.bytes(); };
    layer.each_matrix(add);
    layer.each_expert_matrix(layer.experts.size(), add);
  }
  std::vector<std::pair<std::size_t, Dtype>> order;
  for (const auto& [kind, size] : bytes) order.emplace_back(size, kind);
  std::sort(order.rbegin(), order.rend());
  std::string text;
  for (const auto& [size, kind] : order) {
    text += fmt::format("{}{}", text.empty() ? "" : "+", name_of(kind));
  }
  return text;
}

CpuDevice::Limits device_limits(const Decoder& target, const DFlashDraft* draft,
                                const TurnLimits& turn) {
  const auto bytes = [](std::uint32_t rows, std::initializer_list<std::uint32_t> inputs) {
    return act_bytes(ActKind::f32, rows, std::max(inputs));
  };
  const std::uint32_t rows = TurnRunner::pass_rows(turn, draft);
  CpuDevice::Limits limits{.activation_bytes = bytes(rows, {target.config().hidden_size}),
                           .heads_max = 0,
                           .head_dim_max = 0,
                           .positions_max = turn.context};
  for (const LayerPlan& plan : target.plans()) {
    const LayerShape& shape = plan.shape;
    limits.activation_bytes =
        std::max(limits.activation_bytes, bytes(rows, {shape.intermediate, plan.inner_width()}));
    if (shape.experts > 0) {
      // Every expert's rows begin a tile of their own.
      const std::uint32_t slots = rows * shape.experts_per_row;
      const std::uint32_t padded = slots + kTileRows * std::min(shape.experts, slots);
      limits.activation_bytes = std::max(limits.activation_bytes,
                                         bytes(padded, {shape.hidden, shape.expert_intermediate}));
    }
    limits.heads_max = std::max(limits.heads_max, shape.heads);
    limits.head_dim_max = std::max(limits.head_dim_max, shape.head_dim);
  }
  if (draft == nullptr) return limits;
  const DraftConfig& d = draft->config();
  limits.activation_bytes =
      std::max({limits.activation_bytes, bytes(DFlashDraft::kProjectRows, {draft->tap_width()}),
                bytes(TurnRunner::draft_rows(turn, *draft),
                      {d.hidden_size, d.intermediate_size, d.heads * d.head_dim})});
  limits.heads_max = std::max(limits.heads_max, d.heads);
  limits.head_dim_max = std::max(limits.head_dim_max, d.head_dim);
  return limits;
}

// One bar for both models: `before` bytes are done when this one begins, `after` are left when it
// ends.
LoadProgress share_of(const ProgressFn& progress, std::uint64_t before, std::uint64_t after) {
  if (!progress) return {};
  return [&progress, before, after](std::uint64_t done, std::uint64_t total) {
    progress(before + done, before + total + after);
  };
}

// Takes the weights from the store or loads them, and keeps them there.
template <class Model, class Load>
Result<std::shared_ptr<LoadedWeights<Model>>> shared_weights(
    std::shared_ptr<LoadedWeights<Model>> there, const std::string& key, const SharedParts& shared,
    Load&& load) {
  if (there != nullptr) return there;
  auto weights = std::make_shared<LoadedWeights<Model>>(shared.budget);
  Result<std::unique_ptr<Model>> model = load(weights->ledger);
  if (!model.ok()) return model.status();
  weights->model = std::move(model).value();
  if (shared.weights != nullptr && !key.empty()) shared.weights->keep(key, weights);
  return weights;
}

Status load_weights(Engine::Internals& parts, const PairSource& source,
                    const EngineOptions& options, const SharedParts& shared) {
  const bool look = shared.weights != nullptr;
  const bool drafts = source.draft_config != nullptr;
  const ModelConfig& config = *source.target_config;
  const bool fp32 = options.compute_fp32;
  auto target_there = look ? shared.weights->target(source.target_key) : nullptr;
  auto draft_there = look && drafts ? shared.weights->draft(source.draft_key) : nullptr;
  // Looks at both before either is read: a draft that lacks a tensor is told at once.
  Result<std::uint64_t> target_bytes = std::uint64_t{0};
  Result<std::uint64_t> draft_bytes = std::uint64_t{0};
  if (target_there == nullptr) target_bytes = Decoder::bytes_to_pack(config, *source.target, fp32);
  if (!target_bytes.ok()) return target_bytes.status();
  if (drafts && draft_there == nullptr) {
    draft_bytes =
        DFlashDraft::bytes_to_pack(*source.draft_config, config.hidden_size, *source.draft, fp32);
  }
  if (!draft_bytes.ok()) return draft_bytes.status();

  auto target = shared_weights<Decoder>(
      std::move(target_there), source.target_key, shared, [&](MemoryLedger& ledger) {
        return Decoder::load(config, *source.target, fp32, *parts.pool, ledger,
                             share_of(options.progress, 0, draft_bytes.value()), options.cancel);
      });
  if (!target.ok()) return target.status();
  parts.target_weights = std::move(target).value();
  parts.target = parts.target_weights->model.get();
  if (!drafts) return {};
  auto draft = shared_weights<DFlashDraft>(
      std::move(draft_there), source.draft_key, shared, [&](MemoryLedger& ledger) {
        return DFlashDraft::load(
            *source.draft_config, config.hidden_size, *source.draft, fp32, *parts.pool, ledger,
            share_of(options.progress, target_bytes.value(), 0), options.cancel);
      });
  if (!draft.ok()) return draft.status();
  parts.draft_weights = std::move(draft).value();
  parts.draft = parts.draft_weights->model.get();
  return {};
}

}  // namespace

std::size_t Engine::Internals::bytes(MemoryTag tag) const {
  std::size_t sum = ledger.bytes(tag);
  if (pages != nullptr) sum += pages->ledger().bytes(tag);
  if (target_weights != nullptr) sum += target_weights->ledger.bytes(tag);
  if (draft_weights != nullptr) sum += draft_weights->ledger.bytes(tag);
  return sum;
}

Status assemble(Engine::Internals& parts, const PairSource& source, const EngineOptions& options,
                const SharedParts& shared, std::uint32_t choices) {
  Result<Isa> isa = choose_isa(options.isa);
  if (!isa.ok()) return isa.status();
  const unsigned threads_max = std::max(16u, 4 * available_cores());
  if (options.threads > threads_max) {
    return Status(
        Code::invalid_argument,
        fmt::format("{} compute threads on {} cores would only wait for each other; {} is "
                    "the most",
                    options.threads, available_cores(), threads_max));
  }
  Result<EngineHooks> hooks = bind_hooks(options, parts.info.hooks);
  if (!hooks.ok()) return hooks.status();
  parts.hooks = std::move(hooks).value();
  parts.pool =
      shared.threads != nullptr ? shared.threads : std::make_shared<ThreadPool>(options.threads);

  const ModelConfig& config = *source.target_config;
  if (Status s = load_weights(parts, source, options, shared); !s.ok()) return s;

  if (options.context > config.max_positions) {
    return Status(
        Code::invalid_argument,
        fmt::format("a context of {} positions was asked for, but the model was made for {}",
                    options.context, config.max_positions));
  }
  if (options.sequences == 0 || options.sequences > kSequencesMax) {
    return Status(Code::invalid_argument,
                  fmt::format("{} sequences were to share a pass; 1 to {} can", options.sequences,
                              kSequencesMax));
  }
  if (options.draft_window != 0 && options.draft_window < DraftContext::kWindowMin) {
    return Status(
        Code::invalid_argument,
        fmt::format("a draft window of {} positions is too small; {} at least, or 0 for all",
                    options.draft_window, DraftContext::kWindowMin));
  }
  const std::uint32_t context = options.context == 0 ? config.max_positions : options.context;
  TurnLimits limits{.context = context,
                    .prefill_chunk = prefill_rows(*parts.target, options, context),
                    .choices = std::min(choices, config.vocab_size),
                    .sequences = options.sequences,
                    .draft_context = DraftContext::of(
                        options.draft_window, options.draft_sink,
                        parts.draft == nullptr ? 0 : parts.draft->config().sliding_window)};
  const CpuDevice::Limits device = device_limits(*parts.target, parts.draft, limits);
  Result<std::unique_ptr<CpuDevice>> made = CpuDevice::create(
      *parts.pool, isa.value(), device, parts.ledger, parts.hooks.binding.table());
  if (!made.ok()) return made.status();
  parts.device = std::move(made).value();

  parts.state =
      state_spec(*parts.target, parts.draft,
                 TurnRunner::layout(*parts.target, parts.draft, limits.draft_context),
                 name_of(isa.value()), parts.hooks.binding.digest_text(), parts.ledger.budget());
  if (shared.caches != nullptr) {
    parts.identity = {
        .target = parts.info.target, .draft = parts.info.draft, .label = shared.label};
    Result<CacheLease> lease = shared.caches->resolve(parts.identity, shared.cache, parts.state);
    if (!lease.ok()) return lease.status();
    parts.cache = std::move(lease).value();
  }
  // Pages of a cache and of its engine's sequences come from one place, so that what the one gives
  // back serves the other.
  parts.pages = parts.cache.manager() != nullptr
                    ? parts.cache.manager()->pages()
                    : std::make_shared<PageStore>(parts.state.layout, parts.ledger.budget());
  Result<std::unique_ptr<TurnRunner>> runner = TurnRunner::create(
      *parts.device, *parts.target, parts.draft, limits, parts.pages, parts.ledger);
  if (!runner.ok()) return runner.status();
  parts.runner = std::move(runner).value();
  if (parts.draft != nullptr) {
    Result<CostTable> costs = measure_costs(*parts.runner, options.cancel);
    if (!costs.ok()) return costs.status();
    parts.costs.emplace(std::move(costs).value());
  }

  EngineInfo& info = parts.info;
  info.family = config.family;
  info.weights = weight_kinds(*parts.target);
  info.isa = std::string(name_of(isa.value()));
  info.threads = parts.pool->threads();
  info.context = context;
  info.vocab_size = config.vocab_size;
  info.block_size = parts.draft != nullptr ? parts.draft->config().block_size : 0;
  info.weight_bytes = parts.bytes(MemoryTag::weights);
  return {};
}

}  // namespace drafthouse
