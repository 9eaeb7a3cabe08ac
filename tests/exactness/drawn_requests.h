#pragma once

// Requests whose prompt and options are drawn by a seed, from all options of drawing that there
// are. One seed gives one request on every machine.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "drafthouse/host.h"

namespace drafthouse::test {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}

  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(random_()) % count; }
  bool one_in(std::uint32_t count) { return below(count) == 0; }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(below(1001)) / 1000;
  }
  template <class Range>
  const auto& of(const Range& range) {
    return range[below(static_cast<std::uint32_t>(std::size(range)))];
  }

 private:
  std::mt19937 random_;
};

// Thousands of different ones.
inline std::string drawn_question(Dice& dice) {
  static const char* const kForms[] = {
      "Write a short story about",    "Explain in two sentences",
      "List five facts about",        "What should a child know of",
      "Write a poem that rhymes on",  "Compare the price and use of",
      "Give a recipe that goes with", "Write Python code that draws",
      "Translate into French:",
  };
  static const char* const kTopics[] = {
      "the sea", "a lighthouse", "bread",       "prime numbers", "a cat", "the moon",
      "winter",  "gravity",      "old bridges", "a red bicycle", "tea",   "steam engines",
  };
  static const char* const kEnds[] = {
      "", ", please.", "; be brief.", " for my aunt.", " 1, 2, 3.", " (true or false?)"};
  std::string question = dice.of(kForms);
  question += std::string(" ") + dice.of(kTopics);
  if (dice.one_in(3)) question += std::string(" and ") + dice.of(kTopics);
  return question + dice.of(kEnds);
}

// A conversation of one question, sometimes of several, as ids.
inline std::vector<std::uint32_t> drawn_prompt(const Engine& engine, Dice& dice) {
  std::vector<ChatTurn> turns;
  for (std::uint32_t before = dice.one_in(6) ? 1 + dice.below(3) : 0; before > 0; --before) {
    turns.push_back({"user", drawn_question(dice)});
    turns.push_back({"assistant", "That is about " + drawn_question(dice)});
  }
  turns.push_back({"user", drawn_question(dice)});
  if (engine.info().has_chat_template && !dice.one_in(8)) {
    return engine.encode_chat(turns).value();
  }
  return engine.encode(turns.back().content, true).value();
}

// Ids that the prompt holds, which are likely ones.
inline std::vector<std::uint32_t> some_of(const std::vector<std::uint32_t>& prompt,
                                          std::uint32_t count, Dice& dice) {
  std::vector<std::uint32_t> ids;
  while (ids.size() < count) ids.push_back(dice.of(prompt));
  return ids;
}

inline void draw_filters(SamplingOptions& options, Dice& dice) {
  static const std::uint32_t kTopK[] = {1, 2, 5, 40, 400, 1u << 20};
  if (dice.one_in(3)) options.top_k = dice.of(kTopK);
  if (dice.one_in(3)) options.top_p = dice.between(0.05f, 1);
  if (dice.one_in(3)) options.min_p = dice.between(0, 0.3f);
  if (dice.one_in(4)) options.typical_p = dice.between(0.1f, 1);
  if (dice.one_in(4)) {
    options.xtc_probability = dice.between(0, 1);
    options.xtc_threshold = dice.between(0.01f, 0.4f);
  }
}

inline void draw_penalties(SamplingOptions& options, const std::vector<std::uint32_t>& prompt,
                           Dice& dice) {
  if (dice.one_in(3)) options.repetition_penalty = dice.between(0.8f, 1.5f);
  if (dice.one_in(4)) options.presence_penalty = dice.between(-1, 2);
  if (dice.one_in(4)) options.frequency_penalty = dice.between(-1, 1);
  if (!dice.one_in(4)) return;
  options.dry_multiplier = dice.between(0, 2);
  options.dry_base = dice.between(1, 2);
  options.dry_allowed_length = 1 + dice.below(3);
  if (dice.one_in(2)) options.dry_range = 8 + dice.below(60);
  if (dice.one_in(2)) options.dry_breaker_ids = some_of(prompt, 2, dice);
}

inline void draw_choices(SamplingOptions& options, const std::vector<std::uint32_t>& prompt,
                         std::uint32_t vocabulary, Dice& dice) {
  if (dice.one_in(4)) {
    for (const std::uint32_t id : some_of(prompt, 4, dice)) {
      options.logit_bias.push_back({id, dice.between(-4, 4)});
    }
  }
  if (dice.one_in(4)) options.ban_ids = some_of(prompt, 6, dice);
  if (!dice.one_in(6)) return;
  for (std::uint32_t i = 0; i < 500; ++i) options.allow_ids.push_back(dice.below(vocabulary));
  options.allow_ids.insert(options.allow_ids.end(), prompt.begin(), prompt.end());
}

// For `model` of a host, which `engine` has the tokenizer of. Width and grammar are left alone.
inline SubmitRequest drawn_request(const Engine& engine, const std::string& model,
                                   std::uint32_t seed) {
  static const std::uint64_t kSeeds[] = {0, 1, 1ull << 63, ~0ull, 1234567};
  static const char* const kStops[] = {" the", "\n", ".", "e", " and", "\xe2\x80\x99", "ing "};
  Dice dice(seed);
  SubmitRequest wanted;
  wanted.model = model;
  wanted.prompt_ids = drawn_prompt(engine, dice);
  wanted.max_tokens = 8 + dice.below(25);
  wanted.ignore_eos = dice.one_in(2);
  wanted.n = dice.one_in(5) ? 2 + dice.below(2) : 1;
  wanted.use_cache = dice.one_in(2);
  wanted.sampling.seed = dice.of(kSeeds) + seed;
  wanted.sampling.temperature = dice.one_in(4) ? 0 : dice.between(0.2f, 1.6f);
  draw_filters(wanted.sampling, dice);
  draw_penalties(wanted.sampling, wanted.prompt_ids, dice);
  draw_choices(wanted.sampling, wanted.prompt_ids, engine.info().vocab_size, dice);
  if (dice.one_in(4)) wanted.sampling.min_tokens = dice.below(40);
  if (dice.one_in(3)) wanted.stop = {dice.of(kStops), dice.of(kStops)};
  if (dice.one_in(4)) wanted.stop_ids = some_of(wanted.prompt_ids, 2, dice);
  wanted.logprobs = dice.one_in(2);
  if (wanted.logprobs) wanted.top_logprobs = dice.below(6);
  return wanted;
}

// The same for an engine.
inline GenerateRequest direct(const SubmitRequest& wanted) {
  GenerateRequest request;
  request.prompt_ids = wanted.prompt_ids;
  request.max_tokens = wanted.max_tokens;
  request.width = wanted.width;
  request.ignore_eos = wanted.ignore_eos;
  request.stop = wanted.stop;
  request.stop_ids = wanted.stop_ids;
  request.sampling = wanted.sampling;
  request.grammar = wanted.grammar;
  request.logprobs = wanted.logprobs;
  request.top_logprobs = wanted.top_logprobs;
  request.n = wanted.n;
  request.reply = wanted.reply;
  return request;
}

}  // namespace drafthouse::test
