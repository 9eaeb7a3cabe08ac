#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "device/device.h"
#include "drafthouse/sampling.h"
#include "drafthouse/status.h"
#include "sampling/candidates.h"
#include "sampling/constraint.h"
#include "sampling/history.h"
#include "sampling/likeliest.h"
#include "sampling/noise.h"

namespace drafthouse {

// Working memory for one row at a time, shared by all samplers of a thread.
class SamplerScratch {
 public:
  static Result<SamplerScratch> create(std::uint32_t vocabulary, MemoryLedger& ledger);

  std::span<float> groups() { return {groups_.as<float>(), group_count_}; }
  std::span<float> more_groups() { return {groups_.as<float>() + group_count_, group_count_}; }
  std::span<float> values() { return {values_.as<float>(), vocabulary_}; }
  std::span<float> kept_row() { return {values_.as<float>() + vocabulary_, vocabulary_}; }
  Candidate* candidates() { return candidates_.as<Candidate>(); }

 private:
  std::uint32_t vocabulary_ = 0;
  std::uint32_t group_count_ = 0;
  Buffer groups_;
  Buffer values_;
  Buffer candidates_;
};

// What a sampler works for: one answer.
struct SamplerJob {
  SamplingOptions options = {};
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;      // of several answers to one prompt
  std::uint32_t vocabulary = 0;  // of the texts' ids
  std::uint32_t choices = 0;     // ids below this may be drawn
  std::uint32_t prompt_length = 0;
  std::uint32_t length_max = 0;  // of the whole text
  bool logprobs = false;         // keeps those of every choice, with so many of the likeliest ids
  std::uint32_t top_logprobs = 0;
  bool prompt_logprobs = false;
  std::vector<std::uint32_t> end_ids = {};      // that end the answer, for min_tokens
  std::shared_ptr<Constraint> constraint = {};  // at the beginning of the answer; null: none
};

// Chooses the ids of one answer (see drafthouse/sampling.h). The choice at a position depends on
// the row of logits, the ids before it and the seed alone. Confined to the engine thread.
class Sampler {
 public:
  // Instead of an id:
  static constexpr std::uint32_t kDamaged = 0xffffffffu;  // the logits are not finite
  static constexpr std::uint32_t kNothing = 0xfffffffeu;  // every id was taken out
  static constexpr std::uint32_t kFailed = 0xfffffffdu;   // failure() says why

  // The options have passed check_sampling().
  explicit Sampler(SamplerJob job);

  // Whether answers with these options are just the most likely ids, so that no sampler is needed.
  static bool plain(const SamplingOptions& options);

  std::uint64_t seed() const { return job_.seed; }
  bool draws() const { return job_.options.temperature > 0; }

  const Status& failure() const { return failure_; }

  // The text so far; the next choice is of the id behind it.
  void sync(std::span<const std::uint32_t> ids);
  // Goes on by one id.
  void push(std::uint32_t id);

  // The target's id behind the text, from its logits there: [choices], overwritten.
  std::uint32_t choose(Device& device, float* logits, SamplerScratch& scratch);
  // Of the choices since the last call, in order.
  std::vector<TokenLogprob> take_logprobs() { return std::exchange(logprobs_, {}); }
  // Whether logits of the whole prompt are wanted, by score(): the target's for the id at
  // `position`.
  bool scores_prompt() const { return job_.prompt_logprobs; }
  void score(Device& device, const float* logits, std::span<const std::uint32_t> prompt,
             std::uint32_t position, SamplerScratch& scratch);
  std::vector<TokenLogprob> take_prompt_logprobs() { return std::exchange(prompt_logprobs_, {}); }
  // What a draft proposes `ahead` places behind the text, from its logits: the same draw, with the
  // penalties of the text so far, and in the grammar behind the proposals before it. `excluded` is
  // never proposed. `scorer` (null: none) has the last word on the likeliest. Any id is right; a
  // good one is accepted.
  std::uint32_t guess(Device& device, float* logits, std::uint32_t ahead, std::uint32_t excluded,
                      SamplerScratch& scratch, CandidateScorer* scorer = nullptr);

 private:
  struct Row {
    std::span<float> logits;
    std::uint32_t position;
  };

  // The log-probability of an id and of the likeliest ones.
  TokenLogprob record(Device& device, const float* logits, std::uint32_t id,
                      SamplerScratch& scratch) const;
  void take_out(Row row) const;
  // Takes out what the constraint does not allow.
  Status constrain(Constraint& constraint, Row row);
  // The lowest id that the constraint allows, for drafts whose vocabulary holds none of those.
  std::uint32_t first_allowed() const;
  void follow(std::uint32_t id);
  bool ends(std::uint32_t id) const;
  // The constraint of proposals stands behind the text again.
  void forget_guesses();
  // It stands behind text and proposals. False: there is none.
  bool lead_guesses();
  // For this turn.
  void stop_guesses();
  // Why no id of the row can be chosen: kNothing, or kDamaged where a logit is not a number.
  static std::uint32_t none_left(Row row);
  std::uint32_t draw(Device& device, Row row, SamplerScratch& scratch) const;
  std::uint32_t draw_filtered(Device& device, Row row, float largest,
                              SamplerScratch& scratch) const;
  std::uint32_t draw_scored(Device& device, Row row, SamplerScratch& scratch,
                            CandidateScorer& scorer) const;
  // How candidates are weighed: the largest logit, and the weights of all ids together (0: of the
  // candidates that top_k leaves).
  struct Weighing {
    float largest = 0;
    double total = 0;
  };
  // The draw after all filters.
  std::uint32_t draw_among(Device& device, std::uint32_t position, std::span<Candidate> left,
                           Weighing weighing, SamplerScratch& scratch) const;
  // The lowest logit that can get through the filters; a bound.
  float lowest_useful(Device& device, Row row, float largest, SamplerScratch& scratch,
                      double& total) const;

  SamplerJob job_;
  Noise noise_;
  History history_;
  std::vector<std::uint32_t> matches_;  // of DRY
  std::vector<TokenLogprob> logprobs_;
  std::vector<TokenLogprob> prompt_logprobs_;
  std::vector<std::uint64_t> allowed_;  // one bit per id; empty: all
  std::vector<std::uint32_t> mask_;     // of the constraint
  std::uint32_t followed_ = 0;          // ids of the answer that the constraint has taken
  // A clone of the constraint that goes along with proposals. The constraint itself does the same
  // work with and without a draft, so that a grammar reaches a limit of its work at the same id.
  std::shared_ptr<Constraint> guesser_;
  std::uint32_t led_ = 0;      // ids of the answer that it has taken
  std::uint32_t guessed_ = 0;  // proposals that it has taken besides
  bool astray_ = false;        // a proposal that it cannot take
  Status failure_;
  bool penalties_ = false;
  bool filters_ = false;
  bool restricts_ = false;  // may take ids out
};

}  // namespace drafthouse
