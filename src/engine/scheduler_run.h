#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "sampling/sampler.h"

// What a scheduler knows of a request, for its own sources only.

namespace drafthouse {

// Whole pages of so many positions.
inline std::uint32_t whole_pages(std::size_t positions) {
  return static_cast<std::uint32_t>(positions / kPageTokens);
}

// Pages between the snapshots of a long text.
inline std::uint32_t snapshot_every(const CacheManager& cache) {
  return std::max(1u, whole_pages(cache.config().snapshot_tokens));
}

// Pages after which an answer is shared with the cache: before a group with a short reach gives
// them back, so that a later text may leave this one at each of its pages.
inline std::uint32_t shared_every(const StateLayout& layout) {
  std::uint32_t every = std::numeric_limits<std::uint32_t>::max() / 2;
  for (const GroupLayout& group : layout.groups) {
    if (group.kind != GroupKind::attention || group.reach == 0) continue;
    every = std::min(every, std::max(1u, whole_pages(group.reach)));
  }
  return every;
}

struct Scheduler::Answers {
  std::vector<GenerateResult> results;  // by choice
  std::vector<Status> statuses;
  std::uint32_t left = 0;          // not ended yet
  std::uint32_t waiting = 0;       // not begun yet, behind the first
  bool prompt_read = false;        // or the first answer has ended without
  std::optional<Sequence> prompt;  // its state, while somebody waits for it
};

struct Scheduler::Run {
  enum class State : std::uint8_t { queued, restoring, prefilling, decoding };

  // Only the first answer uses the cache: the others begin with its state.
  Run(std::shared_ptr<Task> of, std::uint32_t which, Answer limits)
      : task(std::move(of)),
        choice(which),
        flow(which == 0 && !task->request.prompt_logprobs ? task->cache : nullptr, task->salt),
        answer(std::move(limits)) {}

  bool waits() const { return choice > 0 && !answers->prompt_read; }
  void add(const AnswerPiece& piece) {
    result.text += piece.text;
    result.reply.reasoning += piece.reply.reasoning;
    result.reply.content += piece.reply.content;
    result.reply.calls.insert(result.reply.calls.end(), piece.reply.calls.begin(),
                              piece.reply.calls.end());
  }

  std::shared_ptr<Task> task;
  std::uint32_t choice;
  std::shared_ptr<Answers> answers = {};  // null: this is the only one
  State state = State::queued;
  PrefixFlow flow;
  CacheHit hit;
  Answer answer;
  std::optional<Sampler> sampler;  // absent: the most likely ids
  std::optional<Sequence> sequence;
  std::optional<WidthPolicy> policy;
  GenerateResult result;
  // What is prefilled: the request's prompt, and after a preemption the answer so far.
  std::vector<std::uint32_t> prompt;
  std::uint32_t plain_turns = 0;
  double plain_turns_s = 0;  // what they took together
  std::uint32_t published_pages = 0;
  std::uint32_t snapshot_pages = 0;  // of the last snapshot, or of what the run began with
  bool drafts = false;
  bool told = false;  // started() was called
  std::uint64_t id = 0;
  double submitted_s = 0;
  double admitted_s = 0;   // first; 0: not yet
  double restoring_s = 0;  // since when its hit is read
  double prefilled_s = 0;
  double paused_s = 0;  // since when nobody takes its events; 0: not paused
};

// A hit on its way through the background.
struct Scheduler::Restore {
  std::uint64_t run = 0;
  CacheHit hit;
};

struct Scheduler::Restored {
  std::mutex lock;
  std::vector<std::shared_ptr<Restore>> jobs;
};

}  // namespace drafthouse
