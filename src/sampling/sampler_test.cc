#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "device/cpu_device.h"
#include "sampling/options_check.h"
#include "sampling/penalties.h"
#include "sampling/test_reference.h"

namespace drafthouse {
namespace {

using Ids = std::vector<std::uint32_t>;
constexpr std::uint32_t kVocabulary = 333;
std::uint32_t below(std::mt19937& random, std::uint32_t count) {
  return static_cast<std::uint32_t>(random()) % count;
}

constexpr float kOut = -std::numeric_limits<float>::infinity();

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest()
      : device_(
            CpuDevice::create(
                pool_, best_isa(),
                {.activation_bytes = 4096, .heads_max = 1, .head_dim_max = 16, .positions_max = 64},
                ledger_)
                .value()),
        scratch_(SamplerScratch::create(kVocabulary, ledger_).value()) {}

  static SamplerJob job(const SamplingOptions& options, std::uint64_t seed, std::uint32_t prompt) {
    SamplerJob job;
    job.options = options;
    job.seed = seed;
    job.vocabulary = kVocabulary;
    job.choices = kVocabulary;
    job.prompt_length = prompt;
    job.length_max = 100;
    job.end_ids = {5, 6};
    return job;
  }
  std::uint32_t choose(const SamplingOptions& options, std::uint64_t seed,
                       const test::ReferenceText& text, std::vector<float> logits) {
    Sampler sampler(job(options, seed, text.prompt_length));
    sampler.sync(text.ids);
    return sampler.choose(*device_, logits.data(), scratch_);
  }
  static std::vector<float> some_logits(unsigned seed, float spread = 3) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = normal(random);
    return logits;
  }
  // Draws with many seeds against the exact distribution.
  void expect_distribution(const SamplingOptions& options, const test::ReferenceText& text,
                           const std::vector<float>& logits) {
    constexpr std::uint32_t kDraws = 6000;
    std::vector<double> counts(kVocabulary);
    for (std::uint32_t seed = 0; seed < kDraws; ++seed) {
      ++counts[choose(options, seed, text, logits)];
    }
    const std::vector<double> want = test::reference_distribution(options, text, logits);
    EXPECT_GT(test::fit_p(counts, want, kDraws), 0.001);
  }

  ThreadPool pool_{1};
  MemoryLedger ledger_;
  std::unique_ptr<CpuDevice> device_;
  SamplerScratch scratch_;
};

const test::ReferenceText kText{{1, 2, 3, 1, 2, 3, 9, 1, 2}, 4, {5, 6}};

TEST_F(SamplerTest, DrawsHaveTheDistributionOfEveryFilter) {
  const std::vector<float> logits = some_logits(1);
  const std::pair<const char*, SamplingOptions> settings[] = {
      {"temperature 1", {.temperature = 1}},
      {"temperature 0.4", {.temperature = 0.4f}},
      {"temperature 3", {.temperature = 3}},
      {"top_k", {.temperature = 1, .top_k = 7}},
      {"top_k of more than there are groups", {.temperature = 2, .top_k = 100}},
      {"top_p", {.temperature = 1, .top_p = 0.8f}},
      {"top_p of many", {.temperature = 4, .top_p = 0.97f}},
      {"min_p", {.temperature = 1, .min_p = 0.05f}},
      {"typical_p", {.temperature = 1, .typical_p = 0.6f}},
      {"xtc", {.temperature = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.05f}},
      {"all",
       {.temperature = 1.3f,
        .top_k = 60,
        .top_p = 0.95f,
        .min_p = 0.01f,
        .typical_p = 0.9f,
        .xtc_probability = 0.3f,
        .xtc_threshold = 0.1f}},
  };
  for (const auto& [name, options] : settings) {
    SCOPED_TRACE(name);
    expect_distribution(options, kText, logits);
  }
}

TEST_F(SamplerTest, DrawsHaveTheDistributionOfEveryPenalty) {
  std::vector<float> logits = some_logits(2, 1);
  for (const std::uint32_t id : {1u, 2u, 3u, 5u, 9u})
    logits[id] = 4 - 0.1f * static_cast<float>(id);
  const std::pair<const char*, SamplingOptions> settings[] = {
      {"repetition", {.temperature = 1, .repetition_penalty = 1.4f}},
      {"presence", {.temperature = 1, .presence_penalty = 1.5f}},
      {"frequency", {.temperature = 1, .frequency_penalty = 0.7f}},
      {"dry", {.temperature = 1, .dry_multiplier = 0.8f}},
      {"dry in a range",
       {.temperature = 1, .dry_multiplier = 0.8f, .dry_allowed_length = 1, .dry_range = 4}},
      {"bias", {.temperature = 1, .logit_bias = {{7, 5}, {1, -3}}}},
      {"banned", {.temperature = 1, .ban_ids = {1, 2}}},
      {"allowed", {.temperature = 1, .allow_ids = {1, 64, 65, 332}}},
      {"min tokens", {.temperature = 1, .min_tokens = 6}},
      {"min tokens over", {.temperature = 1, .min_tokens = 5}},
  };
  for (const auto& [name, options] : settings) {
    SCOPED_TRACE(name);
    expect_distribution(options, kText, logits);
  }
}

TEST_F(SamplerTest, NarrowFiltersAreGreedy) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const std::vector<float> logits = some_logits(seed);
    const std::uint32_t greedy = choose({}, 0, kText, logits);
    EXPECT_EQ(greedy, static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) -
                                                 logits.begin()));
    EXPECT_EQ(choose({.temperature = 1, .top_k = 1}, seed, kText, logits), greedy);
    EXPECT_EQ(choose({.temperature = 1, .top_p = 0.0001f}, seed, kText, logits), greedy);
    EXPECT_EQ(choose({.temperature = 1, .min_p = 1}, seed, kText, logits), greedy);
    EXPECT_EQ(choose({.temperature = 0.001f}, seed, kText, logits), greedy);
  }
}

TEST_F(SamplerTest, GreedyWithPenaltiesIsTheLargestAfterThem) {
  const SamplingOptions options{.repetition_penalty = 1.3f,
                                .presence_penalty = 0.5f,
                                .frequency_penalty = 0.4f,
                                .dry_multiplier = 0.9f,
                                .logit_bias = {{30, 2}},
                                .ban_ids = {31},
                                .min_tokens = 9};
  std::mt19937 random(4);
  for (unsigned round = 0; round < 200; ++round) {
    test::ReferenceText text{{}, 6, {5, 6}};
    for (int i = 0; i < 30; ++i) text.ids.push_back(below(random, 8));
    std::vector<float> logits = some_logits(round, 1);
    const std::vector<double> want = test::reference_logits(options, text, logits);
    const std::uint32_t got = choose(options, round, text, logits);
    EXPECT_NEAR(want[got], *std::max_element(want.begin(), want.end()), 1e-5);
  }
}

TEST_F(SamplerTest, DryIsTheReferenceOnRandomTexts) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    SamplingOptions options{.dry_multiplier = 1, .dry_base = 1.5f};
    options.dry_allowed_length = 1 + below(random, 3);
    options.dry_range = below(random, 2) == 0 ? 0 : 10 + below(random, 20);
    if (below(random, 2) == 0) options.dry_breaker_ids = {0};
    test::ReferenceText text;
    const std::uint32_t ids = 2 + below(random, 3);
    for (std::uint32_t i = 0; i < 1 + below(random, 40); ++i)
      text.ids.push_back(below(random, ids));
    std::vector<float> row(8, 0.0f);
    Ids matches;
    apply_dry(options, text.ids, matches, row);
    const std::vector<double> want =
        test::reference_logits(options, text, std::vector<float>(8, 0.0f));
    for (std::size_t id = 0; id < row.size(); ++id) {
      EXPECT_NEAR(row[id], want[id], std::fabs(want[id]) * 1e-5)
          << "round " << round << " id " << id;
    }
  }
}

TEST_F(SamplerTest, TheDrawDependsOnThePositionAndTheTextOnly) {
  const SamplingOptions options{.temperature = 1, .frequency_penalty = 0.3f};
  Sampler going(job(options, 9, 3));
  Ids text = {1, 2, 3};
  going.sync(text);
  for (int i = 0; i < 40; ++i) {
    std::vector<float> logits = some_logits(100 + static_cast<unsigned>(i), 1);
    const std::uint32_t fresh = choose(options, 9, {text, 3, {}}, logits);
    EXPECT_EQ(going.choose(*device_, logits.data(), scratch_), fresh);
    going.push(fresh);
    text.push_back(fresh);
    // What it takes again changes nothing; another text replaces all it knew.
    if (i % 7 == 0) going.sync(text);
    if (i % 11 == 0) {
      going.sync(Ids{8, 8});
      going.sync(text);
    }
  }
}

TEST_F(SamplerTest, NothingLeftAndDamagedLogitsAreTold) {
  const std::vector<float> logits = some_logits(1);
  EXPECT_EQ(choose({.temperature = 1, .ban_ids = {4}, .allow_ids = {4}}, 1, kText, logits),
            Sampler::kNothing);
  EXPECT_EQ(choose({.ban_ids = {4}, .allow_ids = {4}}, 1, kText, logits), Sampler::kNothing);
  std::vector<float> infinite = logits;
  infinite[100] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(choose({.temperature = 1}, 1, kText, infinite), Sampler::kDamaged);
  std::vector<float> lost(kVocabulary, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(choose({.temperature = 1}, 1, kText, lost), Sampler::kDamaged);
  // What was taken out is not why.
  EXPECT_EQ(choose({.ban_ids = {4}}, 1, kText, lost), Sampler::kDamaged);
  EXPECT_EQ(choose({.temperature = 1, .allow_ids = {4}}, 1, kText, lost), Sampler::kDamaged);
}

TEST_F(SamplerTest, LogprobsAreThoseOfTheModelBeforeAnything) {
  const std::vector<float> logits = some_logits(12);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  SamplerJob with = job({.temperature = 1.5f, .logit_bias = {{3, 20}}, .ban_ids = {9}}, 4, 0);
  with.logprobs = true;
  with.top_logprobs = 7;
  Sampler sampler(with);
  for (int i = 0; i < 20; ++i) {
    std::vector<float> row = logits;
    const std::uint32_t id = sampler.choose(*device_, row.data(), scratch_);
    sampler.push(id);
    const std::vector<TokenLogprob> got = sampler.take_logprobs();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].id, id);
    EXPECT_NEAR(got[0].logprob, static_cast<double>(logits[id]) - std::log(sum), 1e-6);
    ASSERT_EQ(got[0].top.size(), 7u);
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (std::size_t k = 0; k < 7; ++k) {
      EXPECT_EQ(logits[got[0].top[k].id], sorted[k]);
      EXPECT_NEAR(got[0].top[k].logprob, static_cast<double>(sorted[k]) - std::log(sum), 1e-6);
    }
  }
}

TEST_F(SamplerTest, AGuessFromTheTargetsOwnLogitsIsItsDraw) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (const SamplingOptions& options :
         {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_k = 40},
          SamplingOptions{.temperature = 1, .repetition_penalty = 1.2f}}) {
      Sampler sampler(job(options, seed, 4));
      sampler.sync(kText.ids);
      std::vector<float> logits = some_logits(static_cast<unsigned>(seed));
      std::vector<float> same = logits;
      const std::uint32_t guess = sampler.guess(*device_, logits.data(), 0, kVocabulary, scratch_);
      EXPECT_EQ(guess, sampler.choose(*device_, same.data(), scratch_));
    }
  }
}

// Favours every third id.
class Favourites final : public CandidateScorer {
 public:
  explicit Favourites(float favour) : favour_(favour) {}
  std::uint32_t top_k() const override { return 24; }
  void rescore(std::span<Candidate> candidates) override {
    for (std::size_t i = 1; i < candidates.size(); ++i) {
      EXPECT_TRUE(likelier(candidates[i - 1], candidates[i]));
    }
    for (Candidate& candidate : candidates) candidate.logit += candidate.id % 3 == 0 ? favour_ : 0;
  }

 private:
  float favour_;
};

TEST_F(SamplerTest, AScorerHasTheLastWordOnTheLikeliest) {
  Favourites none(0);
  Favourites strong(100);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> row = some_logits(static_cast<unsigned>(seed));
    Ids order(kVocabulary);
    for (std::uint32_t id = 0; id < kVocabulary; ++id) order[id] = id;
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return row[a] > row[b]; });
    const Ids top(order.begin(), order.begin() + 24);
    const auto guess = [&](const SamplingOptions& options, std::uint32_t excluded,
                           CandidateScorer& scorer) {
      Sampler sampler(job(options, seed, 4));
      sampler.sync(kText.ids);
      std::vector<float> logits = row;
      return sampler.guess(*device_, logits.data(), 0, excluded, scratch_, &scorer);
    };
    // Greedy, with the best candidate out: the best favourite that is left.
    std::uint32_t best = kVocabulary;
    for (const std::uint32_t id : top) {
      if (id % 3 == 0 && id != top[0] && best == kVocabulary) best = id;
    }
    if (best < kVocabulary) {
      EXPECT_EQ(guess({.ban_ids = {5}}, top[0], strong), best);
      EXPECT_EQ(guess({.temperature = 0.1f}, top[0], strong) % 3, 0u);
    }
    EXPECT_EQ(guess({.ban_ids = {order[40]}}, kVocabulary, none), top[0]);
    // A draw among the candidates is the target's own draw from no more than these.
    Sampler target(job({.temperature = 1, .top_k = 24}, seed, 4));
    target.sync(kText.ids);
    std::vector<float> logits = row;
    EXPECT_EQ(guess({.temperature = 1}, kVocabulary, none),
              target.choose(*device_, logits.data(), scratch_));
  }
}

TEST(SamplingOptionsCheck, NamesTheField) {
  const std::pair<const char*, SamplingOptions> wrong[] = {
      {"temperature", {.temperature = -1}},
      {"temperature", {.temperature = std::numeric_limits<float>::quiet_NaN()}},
      {"temperature", {.temperature = 1e-6f}},
      {"top_p", {.top_p = 0}},
      {"top_p", {.top_p = 1.5f}},
      {"min_p", {.min_p = -0.1f}},
      {"typical_p", {.typical_p = 0}},
      {"xtc_probability", {.xtc_probability = 2}},
      {"xtc_threshold", {.xtc_threshold = 0}},
      {"repetition_penalty", {.repetition_penalty = 0}},
      {"presence_penalty", {.presence_penalty = kOut}},
      {"frequency_penalty", {.frequency_penalty = 1000}},
      {"dry_multiplier", {.dry_multiplier = -1}},
      {"dry_base", {.dry_base = 0.5f}},
      {"dry_allowed_length", {.dry_allowed_length = 0}},
      {"logit_bias", {.logit_bias = {{kVocabulary, 1}}}},
      {"logit_bias", {.logit_bias = {{1, kOut}}}},
      {"ban_ids", {.ban_ids = {1, kVocabulary}}},
      {"allow_ids", {.allow_ids = {kVocabulary}}},
      {"dry_breaker_ids", {.dry_breaker_ids = {kVocabulary}}},
  };
  for (const auto& [field, options] : wrong) {
    const Status status = check_sampling(options, kVocabulary);
    EXPECT_EQ(status.code(), Code::invalid_argument) << field;
    EXPECT_TRUE(status.message().starts_with(field)) << status.message();
  }
  EXPECT_TRUE(check_sampling({}, kVocabulary).ok());
}

}  // namespace
}  // namespace drafthouse
