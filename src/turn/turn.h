#pragma once

#include <algorithm>
#include <atomic>
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
#include "turn/sequence_runner.h"
#include "turn/width_policy.h"

namespace drafthouse {

// The turn, draft → verify → accept → settle, and the prefill before the first one. Owns the working
// memory of a pair; the models and the device must outlive it. Confined to the engine thread.
class TurnRunner {
 public:
  // `draft` may be null. `pages` has layout(target, draft).
  static Result<std::unique_ptr<TurnRunner>> create(Device& device, const Decoder& target,
                                                    const DFlashDraft* draft,
                                                    const TurnLimits& limits,
                                                    std::shared_ptr<PageStore> pages,
                                                    MemoryLedger& ledger);
  // The layer groups of a pair, for its page store.
  static StateLayout layout(const Decoder& target, const DFlashDraft* draft);

  const TurnLimits& limits() const { return limits_; }
  const Decoder& target() const { return target_; }
  const DFlashDraft* draft() const { return draft_; }
  Device& device() { return device_; }

  // An empty sequence. `drafts`: it is tapped and may speculate (needs a draft).
  Result<Sequence> start(bool drafts);

  // Runs the prompt in chunks and appends the first chosen id. On failure the sequence holds a
  // prefix of the prompt and must be dropped. Requires an empty sequence and a non-empty prompt that
  // is shorter than the context.
  Status prefill(Sequence& sequence, std::span<const std::uint32_t> prompt,
                 const std::atomic<bool>* cancel);

  // One turn of `width` rows, 1 without a draft. The width shrinks where the context ends. On failure
  // the sequence is as before the turn. Requires ids.size() <= context.
  Result<TurnOutcome> take_turn(Sequence& sequence, std::uint32_t width,
                                const std::atomic<bool>* cancel);

  // Feeds given ids, `width` rows per pass, and for every row hands out logits [rows][vocab] in
  // batches: visit(first_index, logits, rows).
  template <class Visit>
  Status feed(Sequence& sequence, std::span<const std::uint32_t> ids, std::uint32_t width,
              const std::atomic<bool>* cancel, Visit&& visit);

  // The parts of a turn, for measuring them.
  Status verify_pass(Sequence& sequence, std::span<const std::uint32_t> ids, bool tap,
                     const std::atomic<bool>* cancel);
  Status propose(Sequence& sequence, std::uint32_t width, const std::atomic<bool>* cancel);
  Status project_taps(Sequence& sequence);
  std::span<const std::uint32_t> proposals() const { return proposals_; }
  std::span<const std::uint32_t> chosen() const { return chosen_; }

  std::uint32_t block_size() const { return draft_ != nullptr ? draft_->config().block_size : 1; }

 private:
  TurnRunner(Device& device, const Decoder& target, const DFlashDraft* draft,
             const TurnLimits& limits, std::shared_ptr<PageStore> pages, MemoryLedger& ledger);

  // Fills step_ with one span of `ids` at the sequence's end. Reserves the positions.
  Status begin_pass(Sequence& sequence, std::span<const std::uint32_t> ids);
  Status project(Sequence& sequence, const float* taps, std::uint32_t rows);
  void head_logits(std::uint32_t first, std::uint32_t rows);
  std::span<const std::uint32_t> tap_layers() const {
    if (draft_ == nullptr) return {};
    return draft_->config().target_layer_ids;
  }
  // The choice of each row of logits_; corrupt when one has no finite largest value.
  Status choose(std::uint32_t rows, std::uint32_t* ids);

  Device& device_;
  const Decoder& target_;
  const DFlashDraft* draft_;
  TurnLimits limits_;
  MemoryLedger& ledger_;
  std::shared_ptr<PageStore> pages_;

  StepTable step_;
  std::uint32_t pass_rows_ = 0;  // rows of the widest pass
  Scratch scratch_;
  DFlashDraft::Workspace draft_work_;
  Buffer pass_taps_;   // [prefill_chunk][tap_width], only with a draft
  Buffer logits_;      // [logit_rows_][vocab]
  std::uint32_t logit_rows_ = 0;
  std::vector<std::uint32_t> proposals_;
  std::vector<std::uint32_t> chosen_;
};

template <class Visit>
Status TurnRunner::feed(Sequence& sequence, std::span<const std::uint32_t> ids, std::uint32_t width,
                        const std::atomic<bool>* cancel, Visit&& visit) {
  for (std::size_t first = 0; first < ids.size();) {
    const auto rows = static_cast<std::uint32_t>(
        std::min<std::size_t>({width, pass_rows_, ids.size() - first}));
    if (Status s = begin_pass(sequence, ids.subspan(first, rows)); !s.ok()) return s;
    for (std::uint32_t row = 0; row < rows; ++row) step_.logit_rows.push_back(row);
    if (Status s = target_.forward(device_, step_, scratch_, {}, cancel); !s.ok()) {
      sequence.target.commit(0);
      return s;
    }
    for (std::uint32_t row = 0; row < rows; row += logit_rows_) {
      const std::uint32_t batch = std::min(logit_rows_, rows - row);
      head_logits(row, batch);
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
