#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/sha256.h"
#include "device/device.h"
#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "model/candidate_selector.h"
#include "model/decoder.h"
#include "model/draft_context.h"
#include "model/rope.h"
#include "model/scratch.h"

namespace drafthouse {

// A DFlash draft: a shallow decoder that proposes a whole block in one pass. Mostly it has no
// embedding and no head of its own and borrows its target's. Its context are the target's taps,
// projected once and kept as keys and values:
//
//   c = hidden_norm(fc · taps);  per layer: K = rope(k_norm(k_proj c)), V = v_proj c
//
// Block rows [anchor, mask, mask, …] attend to that context and to each other; row j's final hidden
// state, through the head, is the proposal for its own position. (DFlash, arXiv 2602.06036.)
// DFlash2 has convolutions over the block's rows around every sublayer, and a selector that chooses
// among the likeliest ids of each row, one row after another.
//
// The weights are immutable; project() and propose() are confined to the thread that owns the
// scratch.
class DFlashDraft {
 public:
  // Context rows that one project() takes at most.
  static constexpr std::uint32_t kProjectRows = 128;

  static Result<std::unique_ptr<DFlashDraft>> load(const DraftConfig& config,
                                                   std::uint32_t target_hidden_size,
                                                   const WeightSource& source, bool compute_fp32,
                                                   ThreadPool& pool, MemoryLedger& ledger,
                                                   const LoadProgress& progress,
                                                   const std::atomic<bool>* cancel);

  // Bytes that load() will pack: the total that it reports progress of. The same errors as load(),
  // from the configuration and the tensors' shapes alone.
  static Result<std::uint64_t> bytes_to_pack(const DraftConfig& config,
                                             std::uint32_t target_hidden_size,
                                             const WeightSource& source, bool compute_fp32);

  const DraftConfig& config() const { return config_; }
  // See WeightLoader::digest().
  const Sha256Digest& weights_digest() const { return weights_digest_; }
  // Floats of one tap row: layers tapped × the target's hidden size.
  std::uint32_t tap_width() const { return tap_width_; }

  // Layer groups of the context: full layers, then sliding layers, each if there are any.
  struct Group {
    std::size_t page_bytes;
    std::uint32_t window;  // of its layers; 0: none
  };
  std::span<const Group> groups() const { return groups_; }

  struct Workspace {
    Scratch scratch;
    Buffer context_kv;   // [kProjectRows][layers · 2 · kv_heads · head_dim]
    Buffer block_pages;  // one page per sequence of a pass
    CandidateSelector::Workspace selector;
  };
  Result<Workspace> make_workspace(std::uint32_t sequences, MemoryLedger& ledger) const;

  // Appends context rows: step.rows <= kProjectRows rows whose positions and pages stand in `step`.
  // taps: [rows][tap_width()].
  void project(Device& device, StepTable& step, Workspace& work, const float* taps) const;

  // One block pass per span of `step` (rows: anchor and masks, ids in step.ids; first_position is
  // the anchor's; the context holds the positions before it, as far as `context` says). Leaves the
  // normed hidden states of step.logit_rows in the front rows of work.scratch.normed, for the
  // target's head.
  Status propose(Device& device, const Decoder& target, StepTable& step, Workspace& work,
                 const DraftContext& context, const std::atomic<bool>* cancel) const;

  // Logits of propose()'s rows over the target's vocabulary, [rows][target vocabulary]; −∞ for ids
  // that the draft cannot propose. normed: [rows][hidden].
  void project_head(Device& device, const Decoder& target, const float* normed, std::uint32_t rows,
                    float* logits) const;

  // Of a DFlash2 draft; null in others. Its input is what select_from() was given last.
  const CandidateSelector* selector() const { return config_.is_dflash2() ? &selector_ : nullptr; }
  // Prepares the selector for the wanted rows of the last propose(). Requires selector().
  void select_from(Device& device, Workspace& work, std::uint32_t rows) const;

  std::size_t weight_bytes() const;

 private:
  DFlashDraft(const DraftConfig& config, Rope rope, std::uint32_t tap_width, bool compute_fp32);
  static Result<std::unique_ptr<DFlashDraft>> make(const DraftConfig& config,
                                                   std::uint32_t target_hidden_size,
                                                   const WeightSource& source, bool compute_fp32);

  void declare(WeightLoader& loader);
  KvLayout kv_layout(std::uint32_t layer) const;

  DraftConfig config_;
  LayerShape shape_;
  Rope rope_;
  std::uint32_t tap_width_;
  bool compute_fp32_;
  Buffer memory_;
  Sha256Digest weights_digest_{};
  PackedMatrix fc_;                 // [hidden, tap_width]
  NormWeights context_norm_;        // [hidden]
  NormWeights final_norm_;          // [hidden]
  PackedMatrix embedding_;          // [vocabulary, hidden], or empty: the target's
  PackedMatrix head_;               // [own vocabulary, hidden], or empty: the target's
  std::vector<std::uint32_t> ids_;  // see read_draft_ids()
  CandidateSelector selector_;
  std::vector<DecoderLayer> layers_;
  std::vector<Group> groups_;
  struct Place {
    std::uint32_t group;
    std::uint32_t index;  // of the layer inside its group
  };
  std::vector<Place> places_;
  std::vector<LinearSegment> context_segments_;  // every layer's k_proj and v_proj
  std::size_t block_page_bytes_ = 0;
};

}  // namespace drafthouse
