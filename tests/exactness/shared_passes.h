#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "tests/exactness/real_pairs.h"

// What tests of sequences that share passes start from.

namespace drafthouse::test {

using Ids = std::vector<std::uint32_t>;

inline constexpr std::uint32_t kSequences = 16;

inline std::uint32_t below(std::mt19937& random, std::uint32_t n) {
  return static_cast<std::uint32_t>(random() % n);
}

// The bf16 pair, an integer one, the one with windows and the default pair; in full runs all.
inline std::vector<RealPair> pairs() {
  std::vector<RealPair> all = real_pairs();
  if (full_run()) return all;
  std::vector<RealPair> some = {all[0], all[1]};
  some.insert(some.end(), all.begin() + 4, all.end());
  return some;
}

inline std::unique_ptr<Engine> load(const RealPair& pair, unsigned threads = 2) {
  return must(Engine::load(
      {.target = pair.target, .draft = pair.draft, .threads = threads, .sequences = kSequences}));
}

inline bool small(const RealPair& pair) { return pair.draft != kDefaultDraft; }

// The prompts of a pair that are quick to run.
inline std::vector<Ids> prompts(const RealPair& pair) {
  std::vector<Ids> list;
  for (const nlohmann::json& one : pair.cases) {
    Ids ids = one["prompt_ids"].get<Ids>();
    if (ids.size() < 200) list.push_back(std::move(ids));
  }
  return list;
}

// A prompt of several pages.
inline Ids long_prompt(const RealPair& pair) {
  Ids ids;
  for (std::size_t i = pair.cases.size(); ids.size() < 300; --i) {
    const Ids more = pair.cases[i - 1]["prompt_ids"].get<Ids>();
    ids.insert(ids.end(), more.begin(), more.end());
  }
  ids.resize(300);
  return ids;
}

// What plain decoding writes after a prompt.
inline Ids plain_ids(TurnRunner& runner, const Ids& prompt, std::size_t count) {
  Sequence sequence = runner.start(false).value();
  EXPECT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
  while (sequence.ids.size() < prompt.size() + count) {
    EXPECT_TRUE(runner.take_turn(sequence, 1, nullptr).ok());
  }
  return Ids(sequence.ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), sequence.ids.end());
}

// Whether the ids after the prompt begin like `want`, as far as both go.
inline bool follows(const Sequence& sequence, const Ids& prompt, const Ids& want) {
  const std::size_t count = std::min(want.size(), sequence.ids.size() - prompt.size());
  return std::equal(prompt.begin(), prompt.end(), sequence.ids.begin()) &&
         std::equal(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(count),
                    sequence.ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
}

// The state of a sequence, all taps projected, equals that of a prompt of its ids.
inline void expect_state_of_a_prompt(TurnRunner& runner, Sequence& sequence) {
  ASSERT_TRUE(runner.settle(sequence).ok());
  ASSERT_EQ(sequence.target.length() + 1, sequence.ids.size());
  Sequence fed = runner.start(sequence.drafts()).value();
  const std::span<const std::uint32_t> ids(sequence.ids);
  ASSERT_TRUE(runner.prefill(fed, ids.first(ids.size() - 1), nullptr).ok());
  const State want = state_of(runner, fed);
  const State got = state_of(runner, sequence);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_TRUE(got.target == want.target) << "target pages";
  EXPECT_TRUE(got.draft == want.draft) << "draft pages";
}

}  // namespace drafthouse::test
