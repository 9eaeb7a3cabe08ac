// One seed gives one text: 200 requests with options drawn from all that there are, with
// speculation off, at widths 4, 16 and chosen, alone and among eight, with the same
// log-probabilities. ./test runs a share of them, ./test --full all.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/exactness/drawn_requests.h"
#include "tests/exactness/real_pairs.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

constexpr std::size_t kTogether = 8;

struct Figures {
  std::size_t answers = 0;  // of plain decoding
  std::size_t ids = 0;
  std::size_t compared = 0;     // answers of other paths
  std::size_t accepted = 0;     // proposals that stood
  std::size_t logprobs = 0;     // compared
  double logprob_apart = 0;     // the largest difference
  std::size_t reasons[3] = {};  // stop, length, other
};

void expect_logprobs(const GenerateResult& got, const GenerateResult& want, Figures& figures) {
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
  for (std::size_t i = 0; i < want.logprobs.size(); ++i) {
    const TokenLogprob& mine = got.logprobs[i];
    const TokenLogprob& plain = want.logprobs[i];
    EXPECT_EQ(mine.id, plain.id);
    ASSERT_EQ(mine.top.size(), plain.top.size());
    std::vector<std::pair<double, double>> pairs = {{mine.logprob, plain.logprob}};
    for (std::size_t k = 0; k < plain.top.size(); ++k) {
      EXPECT_EQ(mine.top[k].id, plain.top[k].id);
      pairs.emplace_back(mine.top[k].logprob, plain.top[k].logprob);
    }
    for (const auto& [a, b] : pairs) {
      ASSERT_NEAR(a, b, 1e-4);
      figures.logprob_apart = std::max(figures.logprob_apart, std::fabs(a - b));
      ++figures.logprobs;
    }
  }
}

void expect_answer(const GenerateResult& got, const GenerateResult& want, Figures& figures) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish_reason, want.finish_reason);
  EXPECT_EQ(got.seed, want.seed);
  expect_logprobs(got, want, figures);
  ++figures.compared;
  for (const std::uint32_t gained : got.accepted_per_turn) figures.accepted += gained - 1;
}

void expect_same(const GenerateResult& got, const GenerateResult& want, Figures& figures) {
  expect_answer(got, want, figures);
  ASSERT_EQ(got.more.size(), want.more.size());
  for (std::size_t i = 0; i < want.more.size(); ++i) {
    SCOPED_TRACE("answer " + std::to_string(i + 1));
    expect_answer(got.more[i], want.more[i], figures);
  }
}

void count_plain(const GenerateResult& plain, Figures& figures) {
  ++figures.answers;
  figures.ids += plain.ids.size();
  ++figures.reasons[plain.finish_reason == "stop" ? 0 : plain.finish_reason == "length" ? 1 : 2];
  for (const GenerateResult& more : plain.more) count_plain(more, figures);
}

// The requests of seeds first … first+7: each alone at every width, then all at once.
void run_together(Host& host, const std::string& model, Engine& plain, std::uint32_t first,
                  Figures& figures) {
  static const std::uint32_t kWidths[] = {0, 4, 16, 1};
  std::vector<SubmitRequest> requests;
  std::vector<GenerateResult> wanted;
  for (std::uint32_t seed = first; seed < first + kTogether; ++seed) {
    SCOPED_TRACE("request " + std::to_string(seed));
    SubmitRequest request = drawn_request(plain, model, seed);
    Result<GenerateResult> want = plain.generate(direct(request));
    ASSERT_TRUE(want.ok()) << want.status().message();
    count_plain(want.value(), figures);
    for (const std::uint32_t width : {4u, 16u, 0u}) {
      SCOPED_TRACE("width " + std::to_string(width));
      request.width = width;
      const Event end = test::run(host, request);
      ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
      expect_same(end.result, want.value(), figures);
    }
    request.width = kWidths[seed % std::size(kWidths)];
    requests.push_back(std::move(request));
    wanted.push_back(std::move(want).value());
  }
  std::vector<std::unique_ptr<Stream>> streams;
  for (const SubmitRequest& request : requests) streams.push_back(host.submit(request).value());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    SCOPED_TRACE("among eight: request " + std::to_string(first + i));
    const Event end = finish(*streams[i]);
    ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
    expect_same(end.result, wanted[i], figures);
  }
}

void expect_one_text(const ModelSpec& spec, std::uint32_t groups) {
  auto plain = must(Engine::load({.target = spec.target}));
  ASSERT_NE(plain, nullptr);
  auto host = make_host();
  ASSERT_TRUE(host->load(spec).ok());
  Figures figures;
  for (std::uint32_t group = 0; group < groups; ++group) {
    run_together(*host, spec.name, *plain, group * kTogether, figures);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(figures.accepted, 0u);
  std::printf(
      "%s: %zu requests, %zu answers of %zu ids (%zu stopped, %zu at their length); %zu answers "
      "compared, %zu proposals stood in them; %zu log-probabilities, at most %g apart\n",
      spec.name.c_str(), groups * kTogether, figures.answers, figures.ids, figures.reasons[0],
      figures.reasons[1], figures.compared, figures.accepted, figures.logprobs,
      figures.logprob_apart);
  EXPECT_EQ(figures.reasons[2], 0u);
}

TEST(SeededTexts, OfTheNanoPair) { expect_one_text(nano_spec("nano"), full_run() ? 25 : 2); }

TEST(SeededTexts, OfThePairWithRecurrentLayers) {
  expect_one_text(pair_spec("hybrid", "nano-qwen3_5"), full_run() ? 25 : 1);
}

TEST(SeededTexts, OfThePairWithWindows) {
  expect_one_text(pair_spec("gemma", "nano-gemma4"), full_run() ? 25 : 1);
}

TEST(SeededTexts, OfTheDefaultPair) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  expect_one_text(default_spec("default"), full_run() ? 25 : 1);
}

}  // namespace
}  // namespace drafthouse
