// Drafts with a bounded context behind the prefix cache: whatever tier a prompt's state comes from,
// and wherever it leaves the stored text, the draft sees what it would have seen without a cache.
// So not only the ids are those of a cold run, but every turn accepts as many.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

constexpr std::uint32_t kWidth = 8;
constexpr std::uint32_t kAnswer = 24;
// Longer than the smallest windows, and than what a draft keeps back of them.
constexpr std::uint32_t kLongAnswer = 400;

std::uint32_t pages_below(std::size_t positions) {
  return static_cast<std::uint32_t>(positions / 64 * 64);
}

class DraftWindow : public testing::TestWithParam<std::tuple<std::uint32_t, std::uint32_t>> {
 protected:
  DraftWindow() : folder_("dh_window") {
    spec_ = nano_spec("qwen3");
    std::tie(spec_.draft_window, spec_.draft_sink) = GetParam();
    spec_.cache.disk_directory = folder_.path();
    spec_.cache.disk_free_bytes = 0;
    restart();
  }

  void restart() {
    if (host_ != nullptr) {
      EXPECT_TRUE(host_->flush_cache(60).ok());
    }
    host_ = make_host();
    const Status loaded = host_->load(spec_);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  GenerateResult ask(const std::vector<std::uint32_t>& prompt, const std::string& salt,
                     std::uint32_t answer = kAnswer) {
    SubmitRequest wanted = request(spec_.name, prompt, answer, kWidth);
    wanted.salt = salt;
    const Event end = test::run(*host_, wanted);
    EXPECT_EQ(end.kind, Event::Kind::finished) << end.status.message();
    return end.result;
  }
  // Asks under a salt that holds what `prompt` begins with, and under one that holds nothing.
  void expect_as_cold(const std::vector<std::uint32_t>& prompt, const std::string& salt,
                      const std::string& tier, std::uint32_t matched) {
    SCOPED_TRACE("tier " + tier + ", salt " + salt + ", " + std::to_string(prompt.size()) + " ids");
    const GenerateResult hit = ask(prompt, salt);
    EXPECT_EQ(hit.cache.tier, tier) << hit.cache.reason;
    EXPECT_EQ(hit.cache.matched_tokens, matched) << hit.cache.reason;
    const GenerateResult cold = ask(prompt, "cold" + std::to_string(colds_++));
    EXPECT_EQ(cold.cache.tier, "none");
    EXPECT_EQ(hit.ids, cold.ids);
    EXPECT_EQ(hit.accepted_per_turn, cold.accepted_per_turn);
  }

  ScratchFolder folder_;
  ModelSpec spec_;
  std::unique_ptr<Host> host_;
  int colds_ = 0;
};

// For every tier another text, so that none finds what the one before it left.
std::vector<std::uint32_t> changed_after(std::vector<std::uint32_t> text, std::size_t cut,
                                         const std::string& tier) {
  text.resize(cut);
  auto more = long_prompt(300, 70);
  more.front() = tier == "ram" ? 11 : 12;
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

TEST_P(DraftWindow, AfterAHitItProposesAsWithoutACache) {
  if (spec_.draft_window > 1024 && !full_run()) GTEST_SKIP() << "in ./test --full";
  const std::size_t length = (spec_.draft_window == 0 ? 900 : spec_.draft_window + 450) + 7;
  const std::vector<std::uint32_t> prompt = long_prompt(3, length);
  const std::size_t window = std::min<std::size_t>(spec_.draft_window, 256);
  // At the end of a page, within one, and where a first snapshot's window would not reach.
  const std::vector<std::size_t> cuts{pages_below(length) - 128, length - 30,
                                      length - window - 100};
  for (const char* salt : {"whole", "0", "1", "2"}) (void)ask(prompt, salt);
  for (const char* tier : {"ram", "disk"}) {
    if (std::string(tier) == "disk") restart();
    expect_as_cold(prompt, "whole", tier, pages_below(length - 1));
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const auto edited = changed_after(prompt, cuts[i], tier);
      expect_as_cold(edited, std::to_string(i), tier, pages_below(cuts[i]));
    }
  }
}

TEST_P(DraftWindow, AnswersCanBeGoneOnFromToo) {
  if (spec_.draft_window > 300 && !full_run()) GTEST_SKIP() << "in ./test --full";
  const std::vector<std::uint32_t> prompt = long_prompt(5, 333);
  std::vector<std::uint32_t> text = prompt;
  for (const char* salt : {"end", "inside"}) {
    text = prompt;
    const GenerateResult answered = ask(prompt, salt, kLongAnswer);
    text.insert(text.end(), answered.ids.begin(), answered.ids.end());
  }
  // The last id is not in the state yet.
  const std::uint32_t end = pages_below(text.size() - 1);
  for (const char* tier : {"ram", "disk"}) {
    if (std::string(tier) == "disk") restart();
    expect_as_cold(changed_after(text, text.size(), tier), "end", tier, end);
    const auto edited = changed_after(text, end - 150, tier);
    expect_as_cold(edited, "inside", tier, pages_below(end - 150));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DraftWindow,
                         testing::Combine(testing::Values(256u, 300u, 1024u, 4096u, 0u),
                                          testing::Values(0u, 64u, 100u)),
                         [](const auto& tested) {
                           const std::uint32_t window = std::get<0>(tested.param);
                           return (window == 0 ? std::string("All")
                                               : "Window" + std::to_string(window)) +
                                  "Sink" + std::to_string(std::get<1>(tested.param));
                         });

TEST(DraftWindowLimits, WindowsThatLeaveNothingToSeeAreRefused) {
  for (const std::uint32_t window : {1u, 64u, 128u, 255u}) {
    ModelSpec spec = nano_spec("qwen3");
    spec.draft_window = window;
    const Status loaded = make_host()->load(spec);
    EXPECT_EQ(loaded.code(), Code::invalid_argument) << window;
    EXPECT_NE(loaded.message().find(std::to_string(window)), std::string::npos);
  }
}

}  // namespace
}  // namespace drafthouse
