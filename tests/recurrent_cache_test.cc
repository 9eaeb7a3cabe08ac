// The prefix cache of a target with recurrent layers: where a prompt can go on from, and what is
// said where it cannot. Ids are those of the target alone.

#include <gtest/gtest.h>

#include "cache/state_layout.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

// `shared` ids that all prompts have, then `own` ones.
std::vector<std::uint32_t> prompt_of(std::uint32_t seed, std::size_t shared, std::size_t own) {
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < shared; ++i) ids.push_back(static_cast<std::uint32_t>(i * 37 % 251));
  for (std::size_t i = 0; i < own; ++i) {
    ids.push_back(static_cast<std::uint32_t>((i * 101 + seed * 53 + 7) % 251));
  }
  return ids;
}

class RecurrentCache : public testing::TestWithParam<std::string> {
 protected:
  RecurrentCache() : folder_("dh_recurrent_" + GetParam()) {
    spec_.name = GetParam();
    spec_.target = data_path("tiny/" + GetParam());
    spec_.cache.disk_directory = folder_.path();
    spec_.cache.disk_free_bytes = 0;
    host_ = make_host();
    EXPECT_TRUE(host_->load(spec_).ok());
  }

  // What the request found. Checks its ids.
  CacheReport ask(const std::vector<std::uint32_t>& prompt) {
    const Event end = test::run(*host_, request(spec_.name, prompt, 20));
    EXPECT_EQ(end.kind, Event::Kind::finished) << end.status.message();
    EXPECT_EQ(end.result.ids, alone(spec_, prompt, 20));
    return end.result.cache;
  }
  void restart() {
    EXPECT_TRUE(host_->flush_cache(60).ok());
    host_ = make_host();
    EXPECT_TRUE(host_->load(spec_).ok());
  }

  ScratchFolder folder_;
  ModelSpec spec_;
  std::unique_ptr<Host> host_;
};

TEST_P(RecurrentCache, APromptIsGoneOnFromTheNearestCheckpoint) {
  const auto first = prompt_of(1, 200, 120);
  EXPECT_EQ(ask(first).tier, "none");
  CacheReport report = ask(first);
  EXPECT_EQ(report.tier, "ram");
  EXPECT_EQ(report.matched_tokens, 256u) << report.reason;

  // Three pages are known, and nothing to go on from; but now it is clear that they will be wanted.
  report = ask(prompt_of(2, 200, 120));
  EXPECT_EQ(report.matched_tokens, 0u);
  EXPECT_EQ(report.reason, "no checkpoint of the recurrent layers");
  report = ask(prompt_of(3, 200, 120));
  EXPECT_EQ(report.tier, "ram");
  EXPECT_EQ(report.matched_tokens, 192u) << report.reason;

  restart();
  report = ask(prompt_of(4, 200, 120));
  EXPECT_EQ(report.tier, "disk") << report.reason;
  EXPECT_EQ(report.matched_tokens, 192u);
  report = ask(first);
  EXPECT_EQ(report.tier, "disk") << report.reason;
  EXPECT_EQ(report.matched_tokens, 256u);
}

// A prompt of whole pages leaves the state of one page less, from which it can itself go on.
TEST_P(RecurrentCache, APromptOfWholePagesCanBeAskedAgain) {
  const auto prompt = prompt_of(9, 0, 192);
  EXPECT_EQ(ask(prompt).tier, "none");
  const CacheReport report = ask(prompt);
  EXPECT_EQ(report.tier, "ram");
  EXPECT_EQ(report.matched_tokens, 128u) << report.reason;
}

TEST_P(RecurrentCache, AConversationGoesOnFromTheEndOfItsAnswer) {
  std::vector<std::uint32_t> text = prompt_of(5, 0, 115);
  for (int turn = 0; turn < 4; ++turn) {
    const CacheReport report = ask(text);
    if (turn > 0) {
      EXPECT_EQ(report.tier, "ram") << report.reason;
      EXPECT_GE(report.matched_tokens + kPageTokens + 30, text.size()) << report.reason;
    }
    const auto answer = alone(spec_, text, 20);
    text.insert(text.end(), answer.begin(), answer.end());
    const auto more = prompt_of(static_cast<std::uint32_t>(60 + turn), 0, 10);
    text.insert(text.end(), more.begin(), more.end());
  }
}

// With room for the pages and few states, a state at every page does not keep the end from being
// stored: older ones go.
TEST_P(RecurrentCache, OlderCheckpointsMakeRoomForTheEndOfAText) {
  const auto prompt = prompt_of(7, 0, 778);
  spec_.cache.disk_directory.clear();
  spec_.cache.snapshot_tokens = 4 * kPageTokens;
  const auto begin = [this] {
    host_ = make_host();
    ASSERT_TRUE(host_->load(spec_).ok());
  };
  begin();
  EXPECT_EQ(ask(prompt).tier, "none");
  const std::uint64_t few = host_->stats().models.front().cache_bytes;
  spec_.cache.snapshot_tokens = kPageTokens;
  begin();
  EXPECT_EQ(ask(prompt).tier, "none");
  EXPECT_GT(host_->stats().models.front().cache_bytes, few) << "a state at every page";
  spec_.cache.ram_bytes = few;
  begin();
  EXPECT_EQ(ask(prompt).tier, "none");
  EXPECT_LE(host_->stats().models.front().cache_bytes, few);
  const CacheReport report = ask(prompt);
  EXPECT_EQ(report.tier, "ram") << report.reason;
  EXPECT_EQ(report.matched_tokens, 768u) << report.reason;
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentCache, testing::Values("qwen3_5", "lfm2"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace drafthouse
