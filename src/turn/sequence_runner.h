#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "drafthouse/status.h"
#include "model/draft_context.h"
#include "turn/sequence.h"

namespace drafthouse {

struct TurnLimits {
  std::uint32_t context = 0;        // positions of a sequence
  std::uint32_t prefill_chunk = 0;  // rows of a prefill pass
  std::uint32_t choices = 0;        // ids below this may be chosen; rows past the tokenizer may not
  std::uint32_t sequences = 16;     // that may share a pass
  DraftContext draft_context = {};
};

// What one turn did. Its ids stand at the end of the sequence.
struct TurnOutcome {
  std::uint32_t width = 0;   // rows of the verify pass; less than asked for where the context ends
  std::uint32_t gained = 0;  // accepted + next
  // This sequence's share, by rows, of what the passes took.
  double draft_s = 0;
  double verify_s = 0;
};

// One sequence's part in a batch of turns.
struct TurnJob {
  Sequence* sequence = nullptr;
  std::uint32_t width = 1;  // rows wanted; 1 … block_size(), 1 where the sequence does not draft
  TurnOutcome outcome = {};
  // ok: outcome holds. Otherwise the sequence is as before the turn: no_memory when its pages found
  // no room, corrupt when the model's numbers are not finite. The others of the batch went on.
  Status status = {};
};

// Pages of a prefix, per layer group of the pair (the target's groups, then the draft's) and in
// order of position; empty where out of reach, or missing.
using PrefixPages = std::vector<std::vector<PageRef>>;

// What a scheduler drives: prefill, turns of many sequences at once, and what lies between. A
// sequence belongs to the runner that started it. Confined to the engine thread.
//
// `cancel` (may be null) is looked at in every layer of a pass. A call that returns `cancelled` has
// changed no sequence and can be repeated, whether the reason was a request that ended or one that
// must go first.
class SequenceRunner {
 public:
  virtual ~SequenceRunner() = default;

  virtual const TurnLimits& limits() const = 0;
  // Rows of the draft's block; 1 without a draft.
  virtual std::uint32_t block_size() const = 0;

  // An empty sequence. `drafts`: it is tapped and may speculate; requires a draft.
  virtual Result<Sequence> start(bool drafts) = 0;

  // Begins an empty sequence with the state of the first `length` positions of its prompt: whole
  // pages, less than the prompt. Of a draft's pages any may be missing; the draft then sees a
  // shorter context, and ids are the same. Where the sequence does not draft, the draft's groups
  // may be left out.
  virtual void adopt(Sequence& sequence, std::uint32_t length, const PrefixPages& pages) = 0;

  // A second sequence with the state of the first `count` − 1 ids of one that has just ended its
  // prompt, and these `count` ids: the next turn chooses the id behind them. Full pages are shared,
  // the open one is copied when it is written. unsupported with recurrent layers. Requires 2 <=
  // count < ids.size() and no waiting taps.
  virtual Result<Sequence> fork(const Sequence& sequence, std::uint32_t count) = 0;

  // Runs the next at most `rows_max` positions of the prompt (0: limits().prefill_chunk), from
  // sequence.target.length() on. True once the prompt has ended: the sequence's ids are then the
  // prompt and the first chosen id. On failure the sequence is as before. Requires a prompt that is
  // longer than the state, at most limits().context − 1 ids, and the same in every call.
  virtual Result<bool> prefill_chunk(Sequence& sequence, std::span<const std::uint32_t> prompt,
                                     std::uint32_t rows_max, const std::atomic<bool>* cancel) = 0;

  // One turn of every job's sequence, all in the same passes. The ids of a sequence do not depend
  // on its neighbours. Requires 1 … limits().sequences jobs of different sequences that have ended
  // their prompts and have at most limits().context ids. The status is ok or cancelled.
  virtual Status take_turns(std::span<TurnJob> jobs, const std::atomic<bool>* cancel) = 0;

  // Brings the draft's context up to the target's, so that its pages can be shared too. no_memory
  // leaves the rest waiting.
  virtual Status settle(Sequence& sequence) = 0;

  // Forgets all ids from `count` on, for a text that ends inside a block: leaves the state that
  // plain decoding would have left. Requires 1 <= count <= ids.size(), of the last turn's ids.
  virtual void truncate(Sequence& sequence, std::uint32_t count) = 0;
};

}  // namespace drafthouse
