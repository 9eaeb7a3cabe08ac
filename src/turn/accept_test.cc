#include "turn/accept.h"

#include <gtest/gtest.h>

#include <vector>

namespace drafthouse {
namespace {

// The rule that makes speculative decoding lossless: whatever the draft proposes, the ids that come
// out are the ones the target alone would have produced.
TEST(AcceptGreedy, OutputNeverDependsOnTheDraft) {
  const std::vector<std::uint32_t> alone = {7, 3, 3, 9, 1};
  for (unsigned mask = 0; mask < 16; ++mask) {  // every way of getting four guesses wrong
    std::vector<std::uint32_t> draft(alone.begin(), alone.end() - 1);
    for (unsigned i = 0; i < draft.size(); ++i) {
      if (mask & (1u << i)) draft[i] += 100;
    }
    const Verdict v = accept_greedy(draft, alone);
    std::vector<std::uint32_t> out(draft.begin(), draft.begin() + v.accepted);
    out.push_back(v.next);
    EXPECT_EQ(out, std::vector<std::uint32_t>(
                       alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(out.size())))
        << mask;
  }
}

TEST(Acceptance, IsTheGreedyRuleOneChoiceAtATime) {
  const std::vector<std::uint32_t> chosen = {7, 3, 3, 9, 1};
  for (unsigned mask = 0; mask < 16; ++mask) {
    std::vector<std::uint32_t> draft(chosen.begin(), chosen.end() - 1);
    for (unsigned i = 0; i < draft.size(); ++i) {
      if (mask & (1u << i)) draft[i] += 100;
    }
    Acceptance acceptance(draft);
    std::size_t row = 0;
    while (acceptance.open()) acceptance.take(chosen[row++]);
    const Verdict want = accept_greedy(draft, chosen);
    EXPECT_EQ(acceptance.verdict().accepted, want.accepted);
    EXPECT_EQ(acceptance.verdict().next, want.next);
    EXPECT_EQ(row, want.accepted + 1);
  }
}

TEST(AcceptGreedy, NoProposalsIsPlainDecoding) {
  const std::vector<std::uint32_t> chosen = {42};
  const Verdict v = accept_greedy({}, chosen);
  EXPECT_EQ(v.accepted, 0u);
  EXPECT_EQ(v.next, 42u);
}

}  // namespace
}  // namespace drafthouse
