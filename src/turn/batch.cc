// Turns of a batch. The order matters: room for every row is found first, so that a sequence for
// which there is none leaves before work is done for it; nothing of a sequence changes until all
// passes of the batch are over, so that a cancelled batch can simply be run again. (Waiting taps
// may have been projected by then; nobody can tell.)

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "turn/accept.h"
#include "turn/turn.h"

namespace drafthouse {
namespace {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The scores of a DFlash2 draft's selector for one row of a block.
class RowScorer final : public CandidateScorer {
 public:
  RowScorer(Device& device, const CandidateSelector& selector, CandidateSelector::Workspace& work,
            std::uint32_t row, std::uint32_t previous)
      : device_(device), selector_(selector), work_(work), row_(row), previous_(previous) {}

  std::uint32_t top_k() const override { return selector_.top_k(); }
  void rescore(std::span<Candidate> candidates) override {
    std::uint32_t ids[CandidateSelector::kTopKMax];
    float scores[CandidateSelector::kTopKMax];
    for (std::size_t i = 0; i < candidates.size(); ++i) ids[i] = candidates[i].id;
    selector_.score(device_, work_, row_, previous_, {ids, candidates.size()}, scores);
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].logit += scores[i];
  }

 private:
  Device& device_;
  const CandidateSelector& selector_;
  CandidateSelector::Workspace& work_;
  std::uint32_t row_;
  std::uint32_t previous_;
};

}  // namespace

void TurnRunner::open_part(TurnJob& job) {
  Sequence& sequence = *job.sequence;
  const auto count = static_cast<std::uint32_t>(sequence.ids.size());
  assert(count >= 1 && count <= limits_.context);
  assert(job.width >= 1 && job.width <= block_size());
  Part part{.job = &job};
  part.width = sequence.drafts() ? std::min(job.width, limits_.context - count + 1) : 1;
  job.outcome = {.width = part.width};
  job.status = sequence.target.extend(part.width);
  if (!job.status.ok()) return;
  if (sequence.sampler != nullptr) sequence.sampler->sync(sequence.ids);
  parts_.push_back(part);
}

void TurnRunner::fail(Part& part, Status status) {
  part.job->sequence->target.commit(0);
  part.job->status = std::move(status);
}

void TurnRunner::drop_failed() {
  std::erase_if(parts_, [](const Part& part) { return !part.job->status.ok(); });
}

void TurnRunner::flush_projection() {
  if (projecting_.empty()) return;
  const std::uint32_t width = draft_->tap_width();
  step_.clear();
  const float* taps = projecting_.front()->job->sequence->taps.as<float>();
  if (projecting_.size() > 1) {
    float* at = taps_.as<float>();
    taps = at;
    for (const Part* part : projecting_) {
      const Sequence& sequence = *part->job->sequence;
      const std::size_t floats = std::size_t{sequence.taps_waiting} * width;
      std::memcpy(at, sequence.taps.as<float>(), floats * sizeof(float));
      at += floats;
    }
  }
  for (const Part* part : projecting_) {
    add_span(*part->job->sequence->draft, part->job->sequence->taps_waiting, nullptr);
  }
  draft_->project(device_, step_, draft_work_, taps);
  for (const Part* part : projecting_) {
    Sequence& sequence = *part->job->sequence;
    sequence.draft->commit(sequence.taps_waiting);
    sequence.taps_waiting = 0;
  }
  projecting_.clear();
}

void TurnRunner::project_waiting() {
  projecting_.clear();
  std::uint32_t rows = 0;
  for (Part& part : parts_) {
    Sequence& sequence = *part.job->sequence;
    const std::uint32_t waiting = sequence.taps_waiting;
    if (waiting == 0) continue;
    if (part.width == 1 && waiting < DFlashDraft::kProjectRows) continue;
    if (Status s = sequence.draft->extend(waiting); !s.ok()) {
      fail(part, std::move(s));
      continue;
    }
    if (rows + waiting > DFlashDraft::kProjectRows) {
      flush_projection();
      rows = 0;
    }
    rows += waiting;
    part.draft_rows += waiting;
    projecting_.push_back(&part);
  }
  flush_projection();
  drop_failed();
}

void TurnRunner::add_block(const Sequence& sequence, std::uint32_t width) {
  const DraftConfig& config = draft_->config();
  assert(width >= 2 && width <= config.block_size);
  // The block keeps its trained size; a narrower turn only asks for fewer of its rows.
  step_.ids.push_back(sequence.ids.back());
  step_.ids.insert(step_.ids.end(), config.block_size - 1, config.mask_id);
  for (std::uint32_t row = 1; row < width; ++row) step_.logit_rows.push_back(step_.rows + row);
  add_span(*sequence.draft, config.block_size, nullptr);
}

std::uint32_t TurnRunner::guess_row(const Part& part, std::uint32_t row, float* logits) {
  Sampler* sampler = part.job->sequence->sampler;
  const std::uint32_t ahead = row - part.first_proposal;
  const std::uint32_t mask = draft_->config().mask_id;
  if (draft_->selector() == nullptr) {
    return sampler->guess(device_, logits, ahead, mask, sampling_);
  }
  const std::uint32_t previous = ahead == 0 ? part.job->sequence->ids.back() : proposals_[row - 1];
  RowScorer scorer(device_, *draft_->selector(), draft_work_.selector, row, previous);
  if (sampler != nullptr) {
    return sampler->guess(device_, logits, ahead, mask, sampling_, &scorer);
  }
  if (mask < limits_.choices) logits[mask] = -std::numeric_limits<float>::infinity();
  return best_scored(device_, {logits, limits_.choices}, scorer, sampling_, kNoId);
}

void TurnRunner::guess_rows(std::uint32_t first, std::uint32_t count) {
  for (const Part& part : parts_) {
    if (part.job->sequence->sampler == nullptr && draft_->selector() == nullptr) continue;
    const std::uint32_t begin = std::max(first, part.first_proposal);
    const std::uint32_t end = std::min(first + count, part.first_proposal + part.width - 1);
    for (std::uint32_t row = begin; row < end; ++row) {
      const std::uint32_t id = guess_row(part, row, logits_row(row - first));
      // Where nothing can be proposed the most likely id stands, to be refused.
      if (id < limits_.choices) proposals_[row] = id;
    }
  }
}

void TurnRunner::sample_rows(std::uint32_t first, std::uint32_t count) {
  for (Part& part : parts_) {
    Sampler* sampler = part.job->sequence->sampler;
    if (sampler == nullptr) continue;
    const std::uint32_t begin = std::max(first, part.first_row);
    const std::uint32_t end = std::min(first + count, part.first_row + part.width);
    for (std::uint32_t row = begin; row < end && part.acceptance.open(); ++row) {
      const std::uint32_t id = sampler->choose(device_, logits_row(row - first), sampling_);
      if (part.acceptance.take(id)) sampler->push(id);
    }
  }
}

Status TurnRunner::propose_pass(const std::atomic<bool>* cancel) {
  return draft_->propose(device_, target_, step_, draft_work_, limits_.draft_context, cancel);
}

Status TurnRunner::propose(const std::atomic<bool>* cancel) {
  step_.clear();
  proposals_.clear();
  for (Part& part : parts_) {
    if (part.width == 1) continue;
    part.first_proposal = static_cast<std::uint32_t>(step_.logit_rows.size());
    part.draft_rows += block_size();
    add_block(*part.job->sequence, part.width);
  }
  if (step_.rows == 0) return {};
  if (Status s = propose_pass(cancel); !s.ok()) return s;
  const auto rows = static_cast<std::uint32_t>(step_.logit_rows.size());
  if (draft_->selector() != nullptr) draft_->select_from(device_, draft_work_, rows);
  choose(Side::draft, rows, proposals_,
         [this](std::uint32_t first, std::uint32_t count) { guess_rows(first, count); });
  return {};
}

Status TurnRunner::verify(const std::atomic<bool>* cancel) {
  step_.clear();
  for (Part& part : parts_) {
    Sequence& sequence = *part.job->sequence;
    std::uint32_t block[kBlockRowsMax];
    block[0] = sequence.ids.back();
    std::copy_n(proposals_.begin() + part.first_proposal, part.width - 1, block + 1);
    float* taps = nullptr;
    if (sequence.drafts()) {
      taps = sequence.taps.as<float>() + std::size_t{sequence.taps_waiting} * draft_->tap_width();
    }
    part.first_row = step_.rows;
    part.acceptance = Acceptance({proposals_.data() + part.first_proposal, part.width - 1});
    add_rows(sequence, {block, part.width}, taps, true);
  }
  if (Status s = target_.forward(device_, step_, scratch_, tap_layers(), cancel); !s.ok()) return s;
  choose(Side::target, step_.rows, chosen_,
         [this](std::uint32_t first, std::uint32_t count) { sample_rows(first, count); });
  return {};
}

void TurnRunner::settle_part(Part& part) {
  Sequence& sequence = *part.job->sequence;
  const std::span<const std::uint32_t> proposals(proposals_.data() + part.first_proposal,
                                                 part.width - 1);
  const std::span<const std::uint32_t> chosen(chosen_.data() + part.first_row, part.width);
  Verdict verdict =
      sequence.sampler != nullptr ? part.acceptance.verdict() : accept_greedy(proposals, chosen);
  if (verdict.next >= limits_.choices && verdict.accepted > 0) {
    // The ids before stand, as without a draft; the next turn meets the same end at once.
    verdict = {verdict.accepted - 1, proposals[verdict.accepted - 1]};
  }
  if (verdict.next >= limits_.choices) {
    fail(part, no_id(sequence.sampler, verdict.next));
    return;
  }
  const std::uint32_t gained = verdict.accepted + 1;
  part.job->outcome.gained = gained;
  sequence.target.commit(gained);
  if (sequence.drafts()) sequence.taps_waiting += gained;
  sequence.ids.insert(sequence.ids.end(), proposals.begin(), proposals.begin() + verdict.accepted);
  sequence.ids.push_back(verdict.next);
}

Status TurnRunner::take_turns(std::span<TurnJob> jobs, const std::atomic<bool>* cancel) {
  assert(!jobs.empty() && jobs.size() <= limits_.sequences);
  parts_.clear();
  for (TurnJob& job : jobs) open_part(job);

  const Stopwatch draft_time;
  project_waiting();
  Status status = propose(cancel);
  const double draft_s = draft_time.seconds();
  const Stopwatch verify_time;
  if (status.ok() && !parts_.empty()) status = verify(cancel);
  if (!status.ok()) {
    for (const Part& part : parts_) part.job->sequence->target.commit(0);
    return status;
  }
  const double verify_s = verify_time.seconds();
  std::uint32_t draft_rows = 0;
  for (const Part& part : parts_) draft_rows += part.draft_rows;
  for (Part& part : parts_) {
    settle_part(part);
    TurnOutcome& outcome = part.job->outcome;
    if (draft_rows > 0) outcome.draft_s = draft_s * part.draft_rows / draft_rows;
    outcome.verify_s = verify_s * part.width / step_.rows;
  }
  return {};
}

Result<TurnOutcome> TurnRunner::take_turn(Sequence& sequence, std::uint32_t width,
                                          const std::atomic<bool>* cancel) {
  TurnJob job{.sequence = &sequence, .width = width};
  if (Status s = take_turns({&job, 1}, cancel); !s.ok()) return s;
  if (!job.status.ok()) return std::move(job.status);
  return job.outcome;
}

Status TurnRunner::verify_pass(Sequence& sequence, std::span<const std::uint32_t> ids,
                               const std::atomic<bool>* cancel) {
  if (Status s = sequence.target.extend(static_cast<std::uint32_t>(ids.size())); !s.ok()) return s;
  step_.clear();
  add_rows(sequence, ids, nullptr, true);
  Status status = target_.forward(device_, step_, scratch_, {}, cancel);
  if (status.ok()) {
    choose(Side::target, step_.rows, chosen_);
    if (std::count(chosen_.begin(), chosen_.end(), kNoId) > 0) status = damaged();
  }
  sequence.target.commit(0);
  return status;
}

Status TurnRunner::draft_pass(const Sequence& sequence, std::uint32_t width, std::uint32_t blocks,
                              const std::atomic<bool>* cancel) {
  assert(blocks >= 1 && blocks <= limits_.sequences);
  step_.clear();
  for (std::uint32_t i = 0; i < blocks; ++i) add_block(sequence, width);
  if (Status s = propose_pass(cancel); !s.ok()) return s;
  const auto rows = static_cast<std::uint32_t>(step_.logit_rows.size());
  const CandidateSelector* selector = draft_->selector();
  if (selector != nullptr) draft_->select_from(device_, draft_work_, rows);
  choose(Side::draft, rows, proposals_, [&](std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t row = 0; selector != nullptr && row < count; ++row) {
      RowScorer scorer(device_, *selector, draft_work_.selector, first + row, sequence.ids.back());
      best_scored(device_, {logits_row(row), limits_.choices}, scorer, sampling_, kNoId);
    }
  });
  return {};
}

}  // namespace drafthouse
