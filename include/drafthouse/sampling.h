#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// How the ids of an answer are chosen.
//
// The id at position p of a text is a function of the target's logits there, the ids before it and
// (seed, choice, p): nothing else. So one seed gives one text, with a draft or without, for every
// width, beside other requests, and from a cache.
//
// What is done to a row of logits, in this order:
//   1. logit_bias is added                                 7. top_k
//   2. ban_ids, allow_ids, min_tokens and a grammar        8. top_p
//      take ids out
//   3. repetition_penalty                                  9. min_p
//   4. presence_penalty, frequency_penalty                10. typical_p
//   5. DRY                                                11. XTC
//   6. ÷ temperature                                      12. the draw
// With temperature 0 steps 6 to 12 are: the most likely id, the lowest among equals.

namespace drafthouse {

struct LogitBias {
  std::uint32_t id = 0;
  float bias = 0;
};

struct SamplingOptions {
  float temperature = 0;    // 0: always the most likely id; else 0.0001 to 100
  std::uint32_t top_k = 0;  // only the k most likely ids; 0: all
  float top_p = 1;          // only the most likely ids that together have this probability
  float min_p = 0;          // only ids with this share of the most likely one's probability
  float typical_p = 1;  // only the ids nearest to the expected information, up to this probability
  // With this probability all ids of at least xtc_threshold but the least likely of them are left
  // out.
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;

  // A logit of an id that prompt or answer hold: divided by this (0.01 to 100) when positive, else
  // multiplied.
  float repetition_penalty = 1;
  // Taken from the logit of an id of the answer: once, and once for every time it stands there.
  float presence_penalty = 0;
  float frequency_penalty = 0;
  // Against repeating sequences: an id that would continue a repetition of n >= dry_allowed_length
  // ids loses dry_multiplier · dry_base^(n − dry_allowed_length). Looks at the last dry_range ids
  // of prompt and answer (0: all); sequences do not go over dry_breaker_ids.
  float dry_multiplier = 0;  // 0: off
  float dry_base = 1.75f;
  std::uint32_t dry_allowed_length = 2;
  std::uint32_t dry_range = 0;
  std::vector<std::uint32_t> dry_breaker_ids = {};

  std::vector<LogitBias> logit_bias = {};
  std::vector<std::uint32_t> ban_ids = {};
  std::vector<std::uint32_t> allow_ids = {};  // empty: all
  // No id that would end the answer is chosen before it has this many.
  std::uint32_t min_tokens = 0;

  // Absent: a random one is chosen and reported (GenerateResult::seed).
  std::optional<std::uint64_t> seed = {};
};

// What an answer must conform to from its first id on: a JSON schema, a regular expression over the
// whole answer, or a grammar in llguidance's variant of Lark.
enum class GrammarForm : std::int32_t { none, json_schema, regex, lark };

struct GrammarSpec {
  GrammarForm form = GrammarForm::none;
  std::string text = {};
};

struct IdLogprob {
  std::uint32_t id = 0;
  double logprob = 0;
};

// What the target gave to an id: the natural log of its probability by the model's own logits,
// before any of the above. The same with and without a draft.
struct TokenLogprob {
  std::uint32_t id = 0;
  double logprob = 0;
  std::vector<IdLogprob> top = {};  // the most likely ids there, falling
};

}  // namespace drafthouse
