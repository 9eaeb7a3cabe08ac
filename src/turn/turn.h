#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "cache/page_store.h"
#include "device/device.h"
#include "device/step_table.h"
#include "drafthouse/status.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"
#include "sampling/sampler.h"
#include "turn/accept.h"
#include "turn/sequence_runner.h"
#include "turn/width_policy.h"

namespace drafthouse {

// The turn, draft → verify → accept → settle, and the prefill before the first one, for one
// sequence or several in the same passes. Owns the working memory of a pair; the models and the
// device must outlive it. Confined to the engine thread.
class TurnRunner final : public SequenceRunner {
 public:
  // `draft` may be null. `pages` has layout(target, draft, limits.draft_context).
  static Result<std::unique_ptr<TurnRunner>> create(Device& device, const Decoder& target,
                                                    const DFlashDraft* draft,
                                                    const TurnLimits& limits,
                                                    std::shared_ptr<PageStore> pages,
                                                    MemoryLedger& ledger);
  // The layer groups of a pair, for its page store.
  static StateLayout layout(const Decoder& target, const DFlashDraft* draft,
                            const DraftContext& context = {});
  // Rows of the widest pass and of the widest draft pass, for the device's limits.
  static std::uint32_t pass_rows(const TurnLimits& limits, const DFlashDraft* draft);
  static std::uint32_t draft_rows(const TurnLimits& limits, const DFlashDraft& draft);

  const TurnLimits& limits() const override { return limits_; }
  std::uint32_t block_size() const override { return block_size(draft_); }
  Result<Sequence> start(bool drafts) override;
  void adopt(Sequence& sequence, std::uint32_t length, const PrefixPages& pages) override;
  Result<Sequence> fork(const Sequence& sequence, std::uint32_t count) override;
  Result<bool> prefill_chunk(Sequence& sequence, std::span<const std::uint32_t> prompt,
                             std::uint32_t rows_max, const std::atomic<bool>* cancel) override;
  Status take_turns(std::span<TurnJob> jobs, const std::atomic<bool>* cancel) override;
  Status settle(Sequence& sequence) override;
  void truncate(Sequence& sequence, std::uint32_t count) override;

  const Decoder& target() const { return target_; }
  const DFlashDraft* draft() const { return draft_; }
  Device& device() { return device_; }

  // The whole prompt. On failure the sequence holds a prefix of it.
  Status prefill(Sequence& sequence, std::span<const std::uint32_t> prompt,
                 const std::atomic<bool>* cancel);
  // A batch of one.
  Result<TurnOutcome> take_turn(Sequence& sequence, std::uint32_t width,
                                const std::atomic<bool>* cancel);

  // Feeds given ids, `width` rows per pass, and for every row hands out logits [rows][vocab] in
  // batches: visit(first_index, logits, rows).
  template <class Visit>
  Status feed(Sequence& sequence, std::span<const std::uint32_t> ids, std::uint32_t width,
              const std::atomic<bool>* cancel, Visit&& visit);

  // The passes of a turn, for measuring them; the sequence stays as it is. The draft's pass is made
  // for `blocks` sequences that are all like this one.
  Status verify_pass(Sequence& sequence, std::span<const std::uint32_t> ids,
                     const std::atomic<bool>* cancel);
  Status draft_pass(const Sequence& sequence, std::uint32_t width, std::uint32_t blocks,
                    const std::atomic<bool>* cancel);

 private:
  static constexpr std::uint32_t kNoId = Sampler::kDamaged;

  // One sequence's part in the batch that is being run.
  struct Part {
    TurnJob* job;
    std::uint32_t width = 1;
    std::uint32_t first_proposal = 0;  // of width − 1 in proposals_
    std::uint32_t first_row = 0;       // of width in chosen_
    std::uint32_t draft_rows = 0;  // its rows of the draft's passes, for the share of their time
    Acceptance acceptance{{}};     // with a sampler
  };

  TurnRunner(Device& device, const Decoder& target, const DFlashDraft* draft,
             const TurnLimits& limits, std::shared_ptr<PageStore> pages, MemoryLedger& ledger);
  Status allocate();
  static Status damaged();
  // Why a sequence got no id: `chosen` is no id.
  static Status no_id(const Sampler* sampler, std::uint32_t chosen);
  static std::uint32_t block_size(const DFlashDraft* draft) {
    return draft != nullptr ? draft->config().block_size : 1;
  }

  // Appends a span of rows at the end of `cache` to step_, without ids.
  void add_span(const SequenceCache& cache, std::uint32_t rows, float* taps);
  // A span of `ids` at the target's end, whose positions are reserved. All rows want logits or
  // none.
  void add_rows(Sequence& sequence, std::span<const std::uint32_t> ids, float* taps, bool logits);
  void add_block(const Sequence& sequence, std::uint32_t width);
  std::span<const std::uint32_t> tap_layers() const {
    if (draft_ == nullptr) return {};
    return draft_->config().target_layer_ids;
  }
  // Writes the pending positions of a draft's context. taps: [pending][tap width].
  void project_pending(SequenceCache& context, const float* taps);
  // Whose rows are looked at: those of the last target or draft pass.
  enum class Side : std::uint8_t { target, draft };
  // Logits of `rows` rows of a pass, from its wanted row `first` on, into logits_.
  void head_logits(Side side, std::uint32_t first, std::uint32_t rows);
  // The largest choice of each of the first `rows` wanted rows of a pass: for the draft's never its
  // mask, for the target's kNoId where the logits are not finite. Calls visit(first, count) for
  // every batch of rows while their logits are there.
  template <class Visit>
  void choose(Side side, std::uint32_t rows, std::vector<std::uint32_t>& ids, Visit&& visit);
  void choose(Side side, std::uint32_t rows, std::vector<std::uint32_t>& ids) {
    choose(side, rows, ids, [](std::uint32_t, std::uint32_t) {});
  }
  float* logits_row(std::uint32_t row) {
    return logits_.as<float>() + std::size_t{row} * target_.config().vocab_size;
  }

  // What the logits of a prompt's rows [first, first + rows) are for: scores, and after the last
  // one the first id, in chosen_.
  Status read_prompt(Sequence& sequence, std::span<const std::uint32_t> prompt, std::uint32_t first,
                     std::uint32_t rows);

  // The steps of take_turns() over parts_.
  void open_part(TurnJob& job);
  void fail(Part& part, Status status);
  void drop_failed();
  void project_waiting();
  void flush_projection();
  Status propose(const std::atomic<bool>* cancel);
  Status propose_pass(const std::atomic<bool>* cancel);
  Status verify(const std::atomic<bool>* cancel);
  // For the rows [first, first + count) whose logits are there: what the draft proposes where that
  // is not the largest logit, what the target chooses in sequences with a sampler.
  void guess_rows(std::uint32_t first, std::uint32_t count);
  std::uint32_t guess_row(const Part& part, std::uint32_t row, float* logits);
  void sample_rows(std::uint32_t first, std::uint32_t count);
  void settle_part(Part& part);

  Device& device_;
  const Decoder& target_;
  const DFlashDraft* draft_;
  TurnLimits limits_;
  MemoryLedger& ledger_;
  std::shared_ptr<PageStore> pages_;

  StepTable step_;
  std::uint32_t pass_rows_ = 0;
  Scratch scratch_;
  DFlashDraft::Workspace draft_work_;
  Buffer taps_;    // [prefill chunk or kProjectRows][tap_width], only with a draft
  Buffer logits_;  // [logit_rows_][vocab]
  std::uint32_t logit_rows_ = 0;
  SamplerScratch sampling_;
  std::vector<Part> parts_;
  std::vector<Part*> projecting_;
  std::vector<std::uint32_t> proposals_;
  std::vector<std::uint32_t> chosen_;
};

template <class Visit>
void TurnRunner::choose(Side side, std::uint32_t rows, std::vector<std::uint32_t>& ids,
                        Visit&& visit) {
  const std::uint32_t excluded = side == Side::draft ? draft_->config().mask_id : kNoId;
  ids.resize(rows);
  for (std::uint32_t first = 0; first < rows; first += logit_rows_) {
    const std::uint32_t count = std::min(logit_rows_, rows - first);
    head_logits(side, first, count);
    std::uint32_t* chosen = ids.data() + first;
    device_.argmax(logits_.as<float>(), count, target_.config().vocab_size, limits_.choices,
                   excluded, chosen);
    for (std::uint32_t row = 0; side == Side::target && row < count; ++row) {
      if (!std::isfinite(logits_row(row)[chosen[row]])) chosen[row] = kNoId;
    }
    visit(first, count);
  }
}

template <class Visit>
Status TurnRunner::feed(Sequence& sequence, std::span<const std::uint32_t> ids, std::uint32_t width,
                        const std::atomic<bool>* cancel, Visit&& visit) {
  for (std::size_t first = 0; first < ids.size();) {
    const auto rows =
        static_cast<std::uint32_t>(std::min<std::size_t>({width, pass_rows_, ids.size() - first}));
    if (Status s = sequence.target.extend(rows); !s.ok()) return s;
    step_.clear();
    add_rows(sequence, ids.subspan(first, rows), nullptr, true);
    if (Status s = target_.forward(device_, step_, scratch_, {}, cancel); !s.ok()) {
      sequence.target.commit(0);
      return s;
    }
    for (std::uint32_t row = 0; row < rows; row += logit_rows_) {
      const std::uint32_t batch = std::min(logit_rows_, rows - row);
      head_logits(Side::target, row, batch);
      visit(first + row, logits_.as<float>(), batch);
    }
    sequence.target.commit(rows);
    sequence.ids.insert(sequence.ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(first),
                        ids.begin() + static_cast<std::ptrdiff_t>(first + rows));
    first += rows;
  }
  return {};
}

}  // namespace drafthouse
