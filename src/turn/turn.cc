#include "turn/turn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>

#include "turn/accept.h"

namespace drafthouse {
namespace {

// Rows whose logits are kept at once: a block, or a batch of a scored text.
constexpr std::uint32_t kLogitRows = 16;
constexpr std::uint32_t kNoId = 0xffffffffu;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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

StateLayout TurnRunner::layout(const Decoder& target, const DFlashDraft* draft) {
  StateLayout layout{{{.page_bytes = target.page_bytes(), .reach = 0, .draft = false}}};
  if (draft == nullptr) return layout;
  for (const DFlashDraft::Group& group : draft->groups()) {
    layout.groups.push_back({.page_bytes = group.page_bytes, .reach = group.reach, .draft = true});
  }
  return layout;
}

Result<std::unique_ptr<TurnRunner>> TurnRunner::create(Device& device, const Decoder& target,
                                                       const DFlashDraft* draft,
                                                       const TurnLimits& limits,
                                                       std::shared_ptr<PageStore> pages,
                                                       MemoryLedger& ledger) {
  std::unique_ptr<TurnRunner> runner(
      new TurnRunner(device, target, draft, limits, std::move(pages), ledger));
  runner->logit_rows_ = std::max(kLogitRows, runner->block_size());
  const std::uint32_t rows = std::max(limits.prefill_chunk, runner->logit_rows_);
  runner->pass_rows_ = rows;
  Result<Scratch> scratch = target.make_scratch(rows, ledger);
  if (!scratch.ok()) return scratch.status();
  runner->scratch_ = std::move(scratch).value();
  Result<Buffer> logits = Buffer::allocate(
      std::size_t{runner->logit_rows_} * target.config().vocab_size * sizeof(float),
      MemoryTag::activations, ledger);
  if (!logits.ok()) return logits.status();
  runner->logits_ = std::move(logits).value();

  if (draft != nullptr) {
    Result<DFlashDraft::Workspace> work = draft->make_workspace(1, ledger);
    if (!work.ok()) return work.status();
    runner->draft_work_ = std::move(work).value();
    Result<Buffer> taps = Buffer::allocate(std::size_t{rows} * draft->tap_width() * sizeof(float),
                                           MemoryTag::taps, ledger);
    if (!taps.ok()) return taps.status();
    runner->pass_taps_ = std::move(taps).value();
  }
  runner->chosen_.reserve(kBlockRowsMax);
  runner->proposals_.reserve(kBlockRowsMax);
  return runner;
}

Result<Sequence> TurnRunner::start(bool drafts) {
  assert(!drafts || draft_ != nullptr);
  Sequence sequence{.ids = {},
                    .target = SequenceCache({{pages_->pool(0), 0}}, limits_.context),
                    .draft = std::nullopt,
                    .taps = {},
                    .taps_waiting = 0};
  sequence.ids.reserve(limits_.context + 1);
  if (drafts) {
    std::vector<LayerGroup> groups;
    const StateLayout& layout = pages_->layout();
    for (std::size_t g = layout.target_groups(); g < layout.groups.size(); ++g) {
      groups.push_back({pages_->pool(g), layout.groups[g].reach});
    }
    sequence.draft.emplace(std::move(groups), limits_.context);
    Result<Buffer> taps = Buffer::allocate(
        std::size_t{DFlashDraft::kProjectRows} * draft_->tap_width() * sizeof(float),
        MemoryTag::taps, ledger_);
    if (!taps.ok()) return taps.status();
    sequence.taps = std::move(taps).value();
  }
  return sequence;
}

Status TurnRunner::begin_pass(Sequence& sequence, std::span<const std::uint32_t> ids) {
  const auto rows = static_cast<std::uint32_t>(ids.size());
  if (Status s = sequence.target.extend(rows); !s.ok()) return s;
  step_.clear();
  step_.rows = rows;
  step_.ids.assign(ids.begin(), ids.end());
  const std::uint32_t first = sequence.target.length();
  for (std::uint32_t row = 0; row < rows; ++row) step_.positions.push_back(first + row);
  step_.spans.push_back({0, rows, first, {sequence.target.pages(0)}, nullptr});
  return {};
}

void TurnRunner::head_logits(std::uint32_t first, std::uint32_t rows) {
  target_.project_head(device_,
                       scratch_.normed.as<float>() + std::size_t{first} * target_.config().hidden_size,
                       rows, logits_.as<float>());
}

Status TurnRunner::choose(std::uint32_t rows, std::uint32_t* ids) {
  const std::uint32_t vocabulary = target_.config().vocab_size;
  device_.argmax(logits_.as<float>(), rows, vocabulary, limits_.choices, kNoId, ids);
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (std::isfinite(logits_.as<float>()[std::size_t{row} * vocabulary + ids[row]])) continue;
    return Status(Code::corrupt, "the model's logits are not finite numbers; its weights are damaged "
                                 "or do not belong to its configuration");
  }
  return {};
}

Status TurnRunner::project(Sequence& sequence, const float* taps, std::uint32_t rows) {
  SequenceCache& context = *sequence.draft;
  for (std::uint32_t done = 0; done < rows;) {
    const std::uint32_t count = std::min(DFlashDraft::kProjectRows, rows - done);
    if (Status s = context.extend(count); !s.ok()) return s;
    step_.clear();
    step_.rows = count;
    const std::uint32_t first = context.length();
    for (std::uint32_t row = 0; row < count; ++row) step_.positions.push_back(first + row);
    StepSpan span{.first_row = 0, .rows = count, .first_position = first};
    for (std::uint32_t g = 0; g < context.groups(); ++g) span.pages[g] = context.pages(g);
    step_.spans.push_back(span);
    draft_->project(device_, step_, draft_work_, taps + std::size_t{done} * draft_->tap_width());
    context.commit(count);
    done += count;
  }
  return {};
}

Status TurnRunner::project_taps(Sequence& sequence) {
  if (Status s = project(sequence, sequence.taps.as<float>(), sequence.taps_waiting); !s.ok()) {
    return s;
  }
  sequence.taps_waiting = 0;
  return {};
}

Status TurnRunner::prefill(Sequence& sequence, std::span<const std::uint32_t> prompt,
                           const std::atomic<bool>* cancel) {
  assert(!prompt.empty() && sequence.ids.empty());
  for (std::size_t first = 0; first < prompt.size();) {
    const auto rows = static_cast<std::uint32_t>(
        std::min<std::size_t>(limits_.prefill_chunk, prompt.size() - first));
    const bool last = first + rows == prompt.size();
    if (Status s = begin_pass(sequence, prompt.subspan(first, rows)); !s.ok()) return s;
    if (last) step_.logit_rows.push_back(rows - 1);
    if (sequence.drafts()) step_.spans[0].taps = pass_taps_.as<float>();
    if (Status s = target_.forward(device_, step_, scratch_, tap_layers(), cancel); !s.ok()) {
      return s;
    }
    sequence.target.commit(rows);
    if (last) {
      head_logits(0, 1);
      std::uint32_t id = 0;
      if (Status s = choose(1, &id); !s.ok()) return s;
      sequence.ids.assign(prompt.begin(), prompt.end());
      sequence.ids.push_back(id);
    }
    if (sequence.drafts()) {
      if (Status s = project(sequence, pass_taps_.as<float>(), rows); !s.ok()) return s;
    }
    first += rows;
  }
  return {};
}

Status TurnRunner::propose(Sequence& sequence, std::uint32_t width,
                           const std::atomic<bool>* cancel) {
  const DraftConfig& config = draft_->config();
  assert(width >= 2 && width <= config.block_size);
  const SequenceCache& context = *sequence.draft;
  // The block keeps its trained size; a narrower turn only asks for fewer of its rows.
  const std::uint32_t rows = config.block_size;
  step_.clear();
  step_.rows = rows;
  step_.ids.assign(rows, config.mask_id);
  step_.ids[0] = sequence.ids.back();
  const std::uint32_t first = context.length();
  for (std::uint32_t row = 0; row < rows; ++row) step_.positions.push_back(first + row);
  for (std::uint32_t row = 1; row < width; ++row) step_.logit_rows.push_back(row);
  StepSpan span{.first_row = 0, .rows = rows, .first_position = first};
  for (std::uint32_t g = 0; g < context.groups(); ++g) span.pages[g] = context.pages(g);
  step_.spans.push_back(span);
  if (Status s = draft_->propose(device_, target_, step_, draft_work_, cancel); !s.ok()) return s;
  target_.project_head(device_, draft_work_.scratch.normed.as<float>(), width - 1,
                       logits_.as<float>());
  proposals_.resize(width - 1);
  device_.argmax(logits_.as<float>(), width - 1, target_.config().vocab_size, limits_.choices,
                 config.mask_id, proposals_.data());
  return {};
}

Status TurnRunner::verify_pass(Sequence& sequence, std::span<const std::uint32_t> ids, bool tap,
                               const std::atomic<bool>* cancel) {
  if (Status s = begin_pass(sequence, ids); !s.ok()) return s;
  const auto rows = static_cast<std::uint32_t>(ids.size());
  for (std::uint32_t row = 0; row < rows; ++row) step_.logit_rows.push_back(row);
  if (tap) {
    step_.spans[0].taps =
        sequence.taps.as<float>() + std::size_t{sequence.taps_waiting} * draft_->tap_width();
  }
  if (Status s = target_.forward(device_, step_, scratch_, tap_layers(), cancel); !s.ok()) {
    sequence.target.commit(0);
    return s;
  }
  head_logits(0, rows);
  chosen_.resize(rows);
  Status status = choose(rows, chosen_.data());
  if (!status.ok()) sequence.target.commit(0);
  return status;
}

Result<TurnOutcome> TurnRunner::take_turn(Sequence& sequence, std::uint32_t width,
                                          const std::atomic<bool>* cancel) {
  const auto count = static_cast<std::uint32_t>(sequence.ids.size());
  assert(count >= 1 && count <= limits_.context);
  width = std::min(width, limits_.context - count + 1);
  if (!sequence.drafts()) width = 1;
  TurnOutcome outcome{.width = width};

  const Stopwatch draft_time;
  if (sequence.drafts() &&
      (width > 1 || sequence.taps_waiting + width > DFlashDraft::kProjectRows)) {
    if (Status s = project_taps(sequence); !s.ok()) return s;
  }
  proposals_.clear();
  if (width > 1) {
    if (Status s = propose(sequence, width, cancel); !s.ok()) return s;
  }
  outcome.draft_s = draft_time.seconds();

  const Stopwatch verify_time;
  std::uint32_t block[kBlockRowsMax];
  block[0] = sequence.ids.back();
  std::copy(proposals_.begin(), proposals_.end(), block + 1);
  if (Status s = verify_pass(sequence, {block, width}, sequence.drafts(), cancel); !s.ok()) return s;
  const Verdict verdict = accept_greedy(proposals_, chosen_);
  outcome.gained = verdict.accepted + 1;
  sequence.target.commit(outcome.gained);
  if (sequence.drafts()) sequence.taps_waiting += outcome.gained;
  sequence.ids.insert(sequence.ids.end(), proposals_.begin(),
                      proposals_.begin() + verdict.accepted);
  sequence.ids.push_back(verdict.next);
  outcome.verify_s = verify_time.seconds();
  return outcome;
}

}  // namespace drafthouse
