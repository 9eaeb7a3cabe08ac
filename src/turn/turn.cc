#include "turn/turn.h"

#include <algorithm>
#include <cassert>

namespace drafthouse {
namespace {

// Rows whose logits are kept at once. With large vocabularies they are the largest part of the
// working memory, so a batch of many sequences goes through the head in several steps.
constexpr std::uint32_t kLogitRowsMin = 16;
constexpr std::uint32_t kLogitRowsMax = 64;

}  // namespace

TurnRunner::TurnRunner(Device& device, const Decoder& target, const DFlashDraft* draft,
                       const TurnLimits& limits, std::shared_ptr<PageStore> pages,
                       MemoryLedger& ledger)
    : device_(device),
      target_(target),
      draft_(draft),
      limits_(limits),
      ledger_(ledger),
      pages_(std::move(pages)) {}

Status TurnRunner::damaged() {
  return Status(
      Code::corrupt,
      "the model's logits are not finite numbers; its weights are damaged or do not belong "
      "to its configuration");
}

Status TurnRunner::no_id(const Sampler* sampler, std::uint32_t chosen) {
  if (chosen == Sampler::kFailed) return sampler->failure();
  if (chosen != Sampler::kNothing) return damaged();
  return Status(
      Code::invalid_argument,
      "no id is left to choose: allow_ids, ban_ids, min_tokens, the grammar and the end of a "
      "thought take out all of them; allow more");
}

StateLayout TurnRunner::layout(const Decoder& target, const DFlashDraft* draft,
                               const DraftContext& context) {
  StateLayout layout;
  for (const KvGroup& group : target.groups()) {
    GroupKind kind = GroupKind::attention;
    if (group.kind == KvGroup::Kind::recurrent) kind = GroupKind::recurrent;
    if (group.kind == KvGroup::Kind::ring) kind = GroupKind::ring;
    layout.groups.push_back(
        {.page_bytes = group.page_bytes, .reach = group.reach, .draft = false, .kind = kind});
  }
  if (draft == nullptr) return layout;
  for (const DFlashDraft::Group& group : draft->groups()) {
    layout.groups.push_back({.page_bytes = group.page_bytes,
                             .reach = context.reach(group.window),
                             .draft = true,
                             .sink = context.sink_of(group.window)});
  }
  return layout;
}

std::uint32_t TurnRunner::pass_rows(const TurnLimits& limits, const DFlashDraft* draft) {
  return std::max({limits.prefill_chunk, limits.sequences * block_size(draft), kBlockRowsMax});
}

std::uint32_t TurnRunner::draft_rows(const TurnLimits& limits, const DFlashDraft& draft) {
  return std::max(DFlashDraft::kProjectRows, limits.sequences * block_size(&draft));
}

Result<std::unique_ptr<TurnRunner>> TurnRunner::create(Device& device, const Decoder& target,
                                                       const DFlashDraft* draft,
                                                       const TurnLimits& limits,
                                                       std::shared_ptr<PageStore> pages,
                                                       MemoryLedger& ledger) {
  assert(limits.sequences >= 1 && limits.prefill_chunk >= 1);
  std::unique_ptr<TurnRunner> runner(
      new TurnRunner(device, target, draft, limits, std::move(pages), ledger));
  if (Status s = runner->allocate(); !s.ok()) return s;
  return runner;
}

Status TurnRunner::allocate() {
  const std::uint32_t block_rows = limits_.sequences * block_size();
  pass_rows_ = pass_rows(limits_, draft_);
  logit_rows_ = std::max(block_size(), std::clamp(block_rows, kLogitRowsMin, kLogitRowsMax));
  Result<Scratch> scratch = target_.make_scratch(pass_rows_, ledger_);
  if (!scratch.ok()) return scratch.status();
  scratch_ = std::move(scratch).value();
  Result<Buffer> logits =
      Buffer::allocate(std::size_t{logit_rows_} * target_.config().vocab_size * sizeof(float),
                       MemoryTag::activations, ledger_);
  if (!logits.ok()) return logits.status();
  logits_ = std::move(logits).value();
  Result<SamplerScratch> sampling = SamplerScratch::create(limits_.choices, ledger_);
  if (!sampling.ok()) return sampling.status();
  sampling_ = std::move(sampling).value();

  std::uint32_t rows = pass_rows_;
  if (draft_ != nullptr) {
    Result<DFlashDraft::Workspace> work = draft_->make_workspace(limits_.sequences, ledger_);
    if (!work.ok()) return work.status();
    draft_work_ = std::move(work).value();
    Result<Buffer> taps =
        Buffer::allocate(std::size_t{std::max(limits_.prefill_chunk, DFlashDraft::kProjectRows)} *
                             draft_->tap_width() * sizeof(float),
                         MemoryTag::taps, ledger_);
    if (!taps.ok()) return taps.status();
    taps_ = std::move(taps).value();
    rows = std::max(rows, draft_rows(limits_, *draft_));
  }
  step_.ids.reserve(rows);
  step_.positions.reserve(rows);
  step_.logit_rows.reserve(rows);
  step_.spans.reserve(limits_.sequences);
  std::size_t pairs = draft_ != nullptr ? draft_->config().head_dim / 2 : 0;
  for (const LayerPlan& plan : target_.plans()) {
    pairs = std::max<std::size_t>(pairs, plan.shape.head_dim / 2);
  }
  for (RotaryTable& table : step_.rotary) {
    table.cos.reserve(rows * pairs);
    table.sin.reserve(rows * pairs);
  }
  parts_.reserve(limits_.sequences);
  projecting_.reserve(limits_.sequences);
  proposals_.reserve(block_rows);
  chosen_.reserve(std::max(block_rows, kBlockRowsMax));
  return {};
}

Result<Sequence> TurnRunner::start(bool drafts) {
  assert(!drafts || draft_ != nullptr);
  const StateLayout& layout = pages_->layout();
  const auto groups_of = [&](std::size_t begin, std::size_t end) {
    std::vector<LayerGroup> groups;
    for (std::size_t g = begin; g < end; ++g) {
      const GroupLayout& group = layout.groups[g];
      groups.push_back({pages_->pool(g), group.reach, group.kind, group.sink});
    }
    return groups;
  };
  Sequence sequence{.ids = {},
                    .target = SequenceCache(groups_of(0, layout.target_groups()), limits_.context),
                    .draft = std::nullopt,
                    .taps = {},
                    .taps_waiting = 0};
  sequence.ids.reserve(limits_.context + 1);
  if (drafts) {
    sequence.draft.emplace(groups_of(layout.target_groups(), layout.groups.size()),
                           limits_.context);
    Result<Buffer> taps = Buffer::allocate(
        std::size_t{DFlashDraft::kProjectRows} * draft_->tap_width() * sizeof(float),
        MemoryTag::taps, ledger_);
    if (!taps.ok()) return taps.status();
    sequence.taps = std::move(taps).value();
  }
  return sequence;
}

void TurnRunner::adopt(Sequence& sequence, std::uint32_t length, const PrefixPages& pages) {
  assert(sequence.ids.empty() && sequence.taps_waiting == 0);
  const std::span<const std::vector<PageRef>> groups(pages);
  const std::uint32_t targets = sequence.target.groups();
  sequence.target.adopt(length, groups.first(targets));
  if (sequence.drafts()) sequence.draft->adopt(length, groups.subspan(targets));
}

Result<Sequence> TurnRunner::fork(const Sequence& sequence, std::uint32_t count) {
  assert(count >= 2 && count < sequence.ids.size() && sequence.taps_waiting == 0);
  // States of recurrent layers cannot always go back by the one position that this takes.
  for (const GroupLayout& group : pages_->layout().groups) {
    if (group.kind == GroupKind::attention) continue;
    return Status(Code::unsupported, "states of recurrent layers are not forked behind a prompt");
  }
  Result<Sequence> started = start(sequence.drafts());
  if (!started.ok()) return started;
  // Caches do not move into one another: the new sequence is built around the forked ones.
  Sequence forked{.ids = std::move(started.value().ids),
                  .target = sequence.target.fork(),
                  .draft = std::nullopt,
                  .taps = std::move(started.value().taps),
                  .taps_waiting = 0};
  if (sequence.drafts()) forked.draft.emplace(sequence.draft->fork());
  forked.ids.assign(sequence.ids.begin(), sequence.ids.begin() + count);
  forked.target.truncate(count - 1);
  if (forked.drafts() && forked.draft->length() > count - 1) forked.draft->truncate(count - 1);
  return forked;
}

void TurnRunner::add_span(const SequenceCache& cache, std::uint32_t rows, float* taps) {
  StepSpan span{.first_row = step_.rows, .rows = rows, .first_position = cache.length()};
  for (std::uint32_t g = 0; g < cache.groups(); ++g) span.pages[g] = cache.pages(g);
  span.taps = taps;
  step_.spans.push_back(span);
  for (std::uint32_t row = 0; row < rows; ++row) step_.positions.push_back(cache.length() + row);
  step_.rows += rows;
}

void TurnRunner::add_rows(Sequence& sequence, std::span<const std::uint32_t> ids, float* taps,
                          bool logits) {
  const auto rows = static_cast<std::uint32_t>(ids.size());
  for (std::uint32_t row = 0; logits && row < rows; ++row) {
    step_.logit_rows.push_back(step_.rows + row);
  }
  step_.ids.insert(step_.ids.end(), ids.begin(), ids.end());
  add_span(sequence.target, rows, taps);
}

void TurnRunner::head_logits(Side side, std::uint32_t first, std::uint32_t rows) {
  float* logits = logits_.as<float>();
  if (side == Side::draft) {
    const float* normed = draft_work_.scratch.normed.as<float>();
    const std::size_t at = std::size_t{first} * draft_->config().hidden_size;
    return draft_->project_head(device_, target_, normed + at, rows, logits);
  }
  const std::size_t at = std::size_t{first} * target_.config().hidden_size;
  target_.project_head(device_, scratch_.normed.as<float>() + at, rows, logits);
}

void TurnRunner::project_pending(SequenceCache& context, const float* taps) {
  const std::uint32_t rows = context.pending();
  for (std::uint32_t done = 0; done < rows;) {
    const std::uint32_t count = std::min(DFlashDraft::kProjectRows, rows - done);
    step_.clear();
    add_span(context, count, nullptr);
    step_.spans[0].first_position += done;
    for (std::uint32_t& position : step_.positions) position += done;
    draft_->project(device_, step_, draft_work_, taps + std::size_t{done} * draft_->tap_width());
    done += count;
  }
}

Result<bool> TurnRunner::prefill_chunk(Sequence& sequence, std::span<const std::uint32_t> prompt,
                                       std::uint32_t rows_max, const std::atomic<bool>* cancel) {
  const std::uint32_t first = sequence.target.length();
  assert(first < prompt.size() && prompt.size() < limits_.context);
  assert(sequence.ids.empty() && sequence.taps_waiting == 0);
  const std::uint32_t chunk = limits_.prefill_chunk;
  const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(
      rows_max == 0 ? chunk : std::min(rows_max, chunk), prompt.size() - first));
  const bool last = first + rows == prompt.size();

  // Everything that can fail comes before anything is kept.
  Status status = sequence.target.extend(rows);
  if (status.ok() && sequence.drafts()) status = sequence.draft->extend(rows);
  if (status.ok()) {
    step_.clear();
    const bool scored = sequence.sampler != nullptr && sequence.sampler->scores_prompt();
    add_rows(sequence, prompt.subspan(first, rows), sequence.drafts() ? taps_.as<float>() : nullptr,
             scored);
    if (last && !scored) step_.logit_rows.push_back(rows - 1);
    status = target_.forward(device_, step_, scratch_, tap_layers(), cancel);
  }
  if (status.ok()) status = read_prompt(sequence, prompt, first, rows);
  if (!status.ok()) {
    sequence.target.commit(0);
    if (sequence.drafts()) sequence.draft->commit(0);
    return status;
  }
  if (sequence.drafts()) {
    project_pending(*sequence.draft, taps_.as<float>());
    sequence.draft->commit(rows);
  }
  sequence.target.commit(rows);
  if (last) {
    sequence.ids.assign(prompt.begin(), prompt.end());
    sequence.ids.push_back(chosen_.back());
  }
  return last;
}

Status TurnRunner::read_prompt(Sequence& sequence, std::span<const std::uint32_t> prompt,
                               std::uint32_t first, std::uint32_t rows) {
  const auto wanted = static_cast<std::uint32_t>(step_.logit_rows.size());
  if (wanted == 0) return {};
  Sampler* sampler = sequence.sampler;
  const auto score = [&](std::uint32_t begin, std::uint32_t count) {
    for (std::uint32_t row = 0; wanted == rows && row < count; ++row) {
      const std::uint32_t position = first + begin + row + 1;
      if (sampler == nullptr || !sampler->scores_prompt() || position >= prompt.size()) return;
      sampler->score(device_, logits_row(row), prompt, position, sampling_);
    }
  };
  choose(Side::target, wanted, chosen_, score);
  if (first + rows < prompt.size()) return {};
  if (sampler != nullptr) {
    sampler->sync(prompt);
    chosen_.back() = sampler->choose(device_, logits_row((wanted - 1) % logit_rows_), sampling_);
  }
  return chosen_.back() < limits_.choices ? Status() : no_id(sampler, chosen_.back());
}

Status TurnRunner::prefill(Sequence& sequence, std::span<const std::uint32_t> prompt,
                           const std::atomic<bool>* cancel) {
  for (;;) {
    const Result<bool> ended = prefill_chunk(sequence, prompt, 0, cancel);
    if (!ended.ok()) return ended.status();
    if (ended.value()) return {};
  }
}

Status TurnRunner::settle(Sequence& sequence) {
  if (!sequence.drafts() || sequence.taps_waiting == 0) return {};
  if (Status s = sequence.draft->extend(sequence.taps_waiting); !s.ok()) return s;
  project_pending(*sequence.draft, sequence.taps.as<float>());
  sequence.draft->commit(sequence.taps_waiting);
  sequence.taps_waiting = 0;
  return {};
}

void TurnRunner::truncate(Sequence& sequence, std::uint32_t count) {
  assert(count >= 1 && count <= sequence.ids.size());
  const std::uint32_t length = count - 1;
  sequence.ids.resize(count);
  sequence.target.truncate(length);
  if (!sequence.drafts()) return;
  if (sequence.draft->length() > length) sequence.draft->truncate(length);
  sequence.taps_waiting = length - sequence.draft->length();
}

}  // namespace drafthouse
