#include "text/thought.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace drafthouse {
namespace {

using Phase = ThoughtTracker::Phase;

// The phase after each piece, as a letter, and the ids of thoughts.
std::string follow(ThoughtTracker tracker, const std::vector<std::string>& pieces) {
  std::string phases;
  for (const std::string& piece : pieces) {
    tracker.push(piece);
    phases += "bi-a"[static_cast<int>(tracker.phase())];
  }
  return phases + " " + std::to_string(tracker.ids());
}

TEST(ThoughtTracker, FollowsTokensAndPiecesOfMarkers) {
  const ThoughtTracker begin(ReplyFormat::think, false);
  EXPECT_EQ(follow(begin, {"<think>", "a", "b", "</think>", "c"}), "iiiaa 2");
  EXPECT_EQ(follow(begin, {"<thi", "nk>\n", "a", "</", "thi", "nk>\n\n"}), "biiiia 1");
  EXPECT_EQ(follow(begin, {"<think></think>", "a"}), "aa 0");
  // Line ends belong to the end that they stand before, and to the thought elsewhere.
  EXPECT_EQ(follow(begin, {"<think>", "a", "\n", "\n", "</think>"}), "iiiia 1");
  EXPECT_EQ(follow(begin, {"<think>", "a", "\n", "b", "\n", "</", "think>"}), "iiiiiia 3");
  EXPECT_EQ(follow(begin, {"<think>", "\n", "</", "\n</", "a", "</think>"}), "iiiiia 4");
  EXPECT_EQ(follow(begin, {"<think>", "a", "\n"}), "iii 1");
  EXPECT_EQ(follow(begin, {"no", "thought"}), "bb 0");
  EXPECT_EQ(follow(begin, {"<think>", "a", "</think>", "<think>", "b", "</think>"}), "iiaiia 2");
  EXPECT_EQ(follow(ThoughtTracker(ReplyFormat::think, true), {"a", "</think>"}), "ia 1");
}

TEST(ThoughtTracker, Families) {
  EXPECT_EQ(follow(ThoughtTracker(ReplyFormat::gemma, false),
                   {"<|channel>", "thought", "\n", "a", "<channel|>", "b"}),
            "biiiaa 2");
  EXPECT_EQ(follow(ThoughtTracker(ReplyFormat::harmony, false),
                   {"<|channel|>", "analysis", "<|message|>", "a", "<|end|>", "<|start|>",
                    "assistant", "<|channel|>", "final", "<|message|>", "b"}),
            "bbii-----aa 1");
  EXPECT_EQ(follow(ThoughtTracker(ReplyFormat::plain, false), {"<think>", "a"}), "bb 0");
}

// What ends a thought early is an end of it.
TEST(ThoughtTracker, EndingsLeadToTheAnswer) {
  for (const ReplyFormat format :
       {ReplyFormat::think, ReplyFormat::gemma, ReplyFormat::harmony, ReplyFormat::lfm2}) {
    ThoughtTracker tracker(format, true);
    tracker.push("a");
    tracker.push(thought_marks(format)->ending);
    EXPECT_EQ(tracker.phase(), Phase::after) << name_of(format);
  }
}

}  // namespace
}  // namespace drafthouse
