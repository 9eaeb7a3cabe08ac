// What options of drawing do to the texts of a real pair (seeded_texts_test.cc: that they are the
// same on every path). Log-probabilities are the target's, however a token came to be.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/exactness/real_pairs.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

// Settings in turn, so that every one meets several prompts.
SamplingOptions setting(std::size_t index) {
  SamplingOptions options;
  options.seed = 1000 + index;
  options.temperature = index % 3 == 0 ? 0.6f : 1.0f;
  switch (index % 6) {
    case 1: options.top_p = 0.9f; break;
    case 2:
      options.top_k = 20;
      options.min_p = 0.05f;
      break;
    case 3:
      options.repetition_penalty = 1.2f;
      options.frequency_penalty = 0.3f;
      break;
    case 4:
      options.typical_p = 0.9f;
      options.xtc_probability = 0.5f;
      break;
    case 5:
      options.temperature = 0;
      options.presence_penalty = 1.5f;
      options.dry_multiplier = 0.8f;
      break;
    default: break;
  }
  return options;
}

TEST(Sampling, SeedsDifferAndAMissingOneIsReported) {
  auto engine = must(Engine::load({.target = nano("target"), .draft = nano("draft")}));
  ASSERT_NE(engine, nullptr);
  GenerateRequest wanted{.prompt_ids = golden_prompt(0), .max_tokens = 40, .ignore_eos = true};
  EXPECT_FALSE(engine->generate(wanted).value().seed.has_value());
  wanted.sampling.temperature = 1.5f;
  const GenerateResult one = engine->generate(wanted).value();
  const GenerateResult other = engine->generate(wanted).value();
  ASSERT_TRUE(one.seed.has_value() && other.seed.has_value());
  EXPECT_NE(*one.seed, *other.seed);
  EXPECT_NE(one.ids, other.ids);
  wanted.sampling.seed = one.seed;
  wanted.width = 1;
  EXPECT_EQ(engine->generate(wanted).value().ids, one.ids);
}

TEST(Sampling, OptionsActOnEveryTokenOfABlock) {
  auto engine = must(Engine::load({.target = nano("target"), .draft = nano("draft")}));
  ASSERT_NE(engine, nullptr);
  for (std::size_t i = 0; i < 10; ++i) {
    GenerateRequest wanted{.prompt_ids = golden_prompt(i), .max_tokens = 48, .width = 8};
    wanted.ignore_eos = true;
    const auto greedy = engine->generate(wanted).value().ids;
    for (const SamplingOptions& narrow : {SamplingOptions{.temperature = 1, .top_k = 1},
                                          SamplingOptions{.temperature = 1, .top_p = 1e-4f},
                                          SamplingOptions{.temperature = 1, .min_p = 1}}) {
      wanted.sampling = narrow;
      EXPECT_EQ(engine->generate(wanted).value().ids, greedy);
    }
    // The token that greedy decoding says most often never comes; a favoured one always does.
    wanted.sampling = {};
    wanted.sampling.ban_ids = {greedy[0], greedy[5]};
    const auto without = engine->generate(wanted).value().ids;
    for (const std::uint32_t id : without) {
      EXPECT_TRUE(id != greedy[0] && id != greedy[5]);
    }
    wanted.sampling = {};
    wanted.sampling.logit_bias = {{77, 10000}};
    EXPECT_EQ(engine->generate(wanted).value().ids, std::vector<std::uint32_t>(48, 77u));
  }
}

TEST(Sampling, MinTokensAndStopIds) {
  auto engine = must(Engine::load({.target = nano("target"), .draft = nano("draft")}));
  ASSERT_NE(engine, nullptr);
  for (const std::uint32_t width : {1u, 8u}) {
    GenerateRequest wanted{.prompt_ids = golden_prompt(1), .max_tokens = 30, .width = width};
    wanted.ignore_eos = true;
    const auto free = engine->generate(wanted).value().ids;
    wanted.stop_ids = {free[10]};
    const GenerateResult stopped = engine->generate(wanted).value();
    EXPECT_EQ(stopped.finish_reason, "stop");
    EXPECT_EQ(stopped.ids.back(), free[10]);
    EXPECT_LE(stopped.ids.size(), 11u);
    wanted.sampling.min_tokens = 20;
    const GenerateResult longer = engine->generate(wanted).value();
    EXPECT_GE(longer.ids.size(), 20u);
    EXPECT_EQ(std::count(longer.ids.begin(), longer.ids.begin() + 20, free[10]), 0);
  }
  GenerateRequest wrong{.prompt_ids = golden_prompt(1)};
  wrong.sampling.top_p = 3;
  EXPECT_EQ(engine->generate(wrong).status().code(), Code::invalid_argument);
  wrong.sampling = {};
  wrong.stop_ids = {1u << 30};
  EXPECT_EQ(engine->generate(wrong).status().code(), Code::invalid_argument);
  wrong.stop_ids = {};
  wrong.sampling.ban_ids = {3};
  wrong.sampling.allow_ids = {3};
  EXPECT_EQ(engine->generate(wrong).status().code(), Code::invalid_argument);
}

TEST(Logprobs, AreThoseOfThePlainTargetHoweverATokenCame) {
  auto engine = must(Engine::load({.target = nano("target"), .draft = nano("draft")}));
  ASSERT_NE(engine, nullptr);
  for (std::size_t i = 0; i < (full_run() ? 20u : 6u); ++i) {
    GenerateRequest wanted{.prompt_ids = golden_prompt(i), .max_tokens = 40, .ignore_eos = true};
    wanted.logprobs = true;
    wanted.top_logprobs = 5;
    wanted.sampling = setting(i);
    std::vector<TokenLogprob> plain;
    for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
      wanted.width = width;
      const GenerateResult got = engine->generate(wanted).value();
      ASSERT_EQ(got.logprobs.size(), got.ids.size());
      if (plain.empty()) {
        plain = got.logprobs;
        // The same as scoring the whole text.
        std::vector<std::uint32_t> text = wanted.prompt_ids;
        text.insert(text.end(), got.ids.begin(), got.ids.end());
        const std::vector<double> scores = engine->score({.ids = text}).value().logprob;
        for (std::size_t k = 0; k < got.ids.size(); ++k) {
          EXPECT_NEAR(plain[k].logprob, scores[scores.size() - got.ids.size() + k], 1e-4);
        }
      }
      for (std::size_t k = 0; k < got.ids.size(); ++k) {
        EXPECT_EQ(got.logprobs[k].id, got.ids[k]);
        EXPECT_NEAR(got.logprobs[k].logprob, plain[k].logprob, 1e-4);
        ASSERT_EQ(got.logprobs[k].top.size(), 5u);
        EXPECT_GE(got.logprobs[k].top[0].logprob, got.logprobs[k].logprob - 1e-6);
        EXPECT_EQ(got.logprobs[k].top[4].id, plain[k].top[4].id);
      }
    }
  }
}

TEST(Logprobs, OfThePromptAreItsScores) {
  auto engine =
      must(Engine::load({.target = nano("target"), .draft = nano("draft"), .prefill_chunk = 37}));
  ASSERT_NE(engine, nullptr);
  for (const std::size_t length : {1u, 2u, 37u, 38u, 150u}) {
    GenerateRequest wanted{.prompt_ids = test::long_prompt(2, length), .max_tokens = 3};
    wanted.prompt_logprobs = true;
    wanted.top_logprobs = 2;
    const GenerateResult got = engine->generate(wanted).value();
    ASSERT_EQ(got.prompt_logprobs.size(), length - 1);
    if (length == 1) continue;
    const ScoreResult scores = engine->score({.ids = wanted.prompt_ids}).value();
    for (std::size_t i = 0; i + 1 < length; ++i) {
      EXPECT_EQ(got.prompt_logprobs[i].id, wanted.prompt_ids[i + 1]);
      EXPECT_NEAR(got.prompt_logprobs[i].logprob, scores.logprob[i], 1e-4);
      EXPECT_EQ(got.prompt_logprobs[i].top[0].id, scores.top[i]);
    }
  }
}

TEST(Sampling, SeveralAnswersAreTheSameOnEveryPath) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("nano")).ok());
  for (const std::size_t length : {1u, 2u, 64u, 65u, 130u}) {
    SubmitRequest wanted = request("nano", test::long_prompt(3, length), 40, 1);
    wanted.sampling.temperature = 1;
    wanted.sampling.seed = length;
    const Event single = test::run(*host, wanted);
    wanted.n = 6;
    std::vector<std::vector<std::uint32_t>> want;
    for (const std::uint32_t width : {1u, 8u, 0u}) {
      wanted.width = width;
      auto stream = host->submit(wanted).value();
      std::vector<std::vector<std::uint32_t>> streamed(wanted.n);
      Event end;
      do {
        end = stream->next(120).value();
        if (end.kind == Event::Kind::tokens) {
          auto& ids = streamed[end.choice];
          ids.insert(ids.end(), end.ids.begin(), end.ids.end());
        }
      } while (!end.terminal());
      ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
      ASSERT_EQ(end.result.more.size(), 5u);
      EXPECT_EQ(end.result.ids, single.result.ids);
      EXPECT_EQ(streamed[0], end.result.ids);
      for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(streamed[i + 1], end.result.more[i].ids);
      if (want.empty()) want = streamed;
      EXPECT_EQ(streamed, want) << "width " << width;
      EXPECT_NE(streamed[0], streamed[1]);
    }
  }
}

}  // namespace
}  // namespace drafthouse
