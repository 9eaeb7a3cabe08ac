// Speculation does not change the distribution of texts: short answers of a made-up target over a
// small vocabulary, drafted and verified as a turn does it, against the exact probabilities of all
// texts.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "device/cpu_device.h"
#include "sampling/sampler.h"
#include "sampling/test_reference.h"
#include "turn/accept.h"

namespace drafthouse {
namespace {

using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t kVocabulary = 200;
// In three groups of neighbouring ids, several in two of them.
constexpr std::uint32_t kIds[] = {0, 3, 63, 64, 70, 130, 199};
constexpr std::size_t kKinds = std::size(kIds);
constexpr std::size_t kLength = 3;
const Ids kPrompt = {3, 64, 3, 64};

std::size_t kind_of(std::uint32_t id) {
  return static_cast<std::size_t>(std::find(std::begin(kIds), std::end(kIds), id) - kIds);
}

// Logits that depend on the last two ids.
class TableModel {
 public:
  TableModel(unsigned seed, float spread) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, spread);
    for (float& logit : table_) logit = normal(random);
  }
  // A model that knows this one a little.
  TableModel blurred(unsigned seed) const {
    TableModel other = *this;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 0.7f);
    for (float& logit : other.table_) logit += normal(random);
    return other;
  }
  void row(std::uint32_t before, std::uint32_t last, std::vector<float>& logits) const {
    logits.assign(kVocabulary, -std::numeric_limits<float>::infinity());
    const float* from = table_ + (kind_of(before) * kKinds + kind_of(last)) * kKinds;
    for (std::size_t k = 0; k < kKinds; ++k) logits[kIds[k]] = from[k];
  }

 private:
  float table_[kKinds * kKinds * kKinds];
};

struct Setting {
  const char* name;
  SamplingOptions options;
};

std::vector<Setting> settings() {
  return {
      {"temperature 0.5", {.temperature = 0.5f}},
      {"temperature 1", {.temperature = 1}},
      {"temperature 1.5", {.temperature = 1.5f}},
      {"top_k", {.temperature = 1, .top_k = 3}},
      {"top_p", {.temperature = 1, .top_p = 0.9f}},
      {"min_p", {.temperature = 1, .min_p = 0.2f}},
      {"typical_p", {.temperature = 1, .typical_p = 0.7f}},
      {"xtc", {.temperature = 1, .xtc_probability = 0.5f, .xtc_threshold = 0.15f}},
      {"repetition", {.temperature = 1, .repetition_penalty = 1.5f}},
      {"presence and frequency",
       {.temperature = 1, .presence_penalty = 0.8f, .frequency_penalty = 0.6f}},
      {"dry", {.temperature = 1, .dry_multiplier = 0.7f, .dry_allowed_length = 1}},
      {"bias, ban, min tokens and filters",
       {.temperature = 1.2f,
        .top_k = 5,
        .top_p = 0.95f,
        .logit_bias = {{70, 1.5f}},
        .ban_ids = {130},
        .min_tokens = 2}},
  };
}

class SampledAcceptance : public ::testing::Test {
 protected:
  SampledAcceptance()
      : device_(
            CpuDevice::create(
                pool_, best_isa(),
                {.activation_bytes = 4096, .heads_max = 1, .head_dim_max = 16, .positions_max = 64},
                ledger_)
                .value()),
        scratch_(SamplerScratch::create(kVocabulary, ledger_).value()) {}

  // An answer of kLength ids. `width` rows a turn; 1: no speculation.
  Ids answer(const SamplingOptions& options, std::uint64_t seed, std::uint32_t width) {
    SamplerJob job;
    job.options = options;
    job.seed = seed;
    job.vocabulary = kVocabulary;
    job.choices = kVocabulary;
    job.prompt_length = static_cast<std::uint32_t>(kPrompt.size());
    job.length_max = 16;
    job.end_ids = kEnd;
    Sampler sampler(std::move(job));
    Ids text = kPrompt;
    while (text.size() < kPrompt.size() + kLength) {
      sampler.sync(text);
      const Ids proposals = propose(sampler, text, width);
      Acceptance acceptance(proposals);
      Ids block = text;
      while (acceptance.open()) {
        target_.row(block[block.size() - 2], block.back(), row_);
        const std::uint32_t id = sampler.choose(*device_, row_.data(), scratch_);
        EXPECT_LT(id, kVocabulary);
        if (acceptance.take(id)) sampler.push(id);
        block.push_back(id);
        ++chosen_;
      }
      accepted_ += acceptance.verdict().accepted;
      text = block;
    }
    text.resize(kPrompt.size() + kLength);
    text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(kPrompt.size()));
    return text;
  }

  // Row by row from one pass: what the draft believes before it has seen its own proposals.
  Ids propose(Sampler& sampler, const Ids& text, std::uint32_t width) {
    Ids proposals;
    for (std::uint32_t ahead = 0; ahead + 1 < width; ++ahead) {
      draft_.row(text[text.size() - 2], text.back(), row_);
      proposals.push_back(sampler.guess(*device_, row_.data(), ahead, kVocabulary, scratch_));
      if (proposals.back() >= kVocabulary) proposals.back() = 0;
    }
    return proposals;
  }

  // The exact probability of every answer, in the order of index_of().
  std::vector<double> exact(const SamplingOptions& options) {
    std::vector<double> all;
    extend(options, {kPrompt, static_cast<std::uint32_t>(kPrompt.size()), kEnd}, 1, all);
    return all;
  }
  void extend(const SamplingOptions& options, const test::ReferenceText& text, double p,
              std::vector<double>& all) {
    if (text.ids.size() == kPrompt.size() + kLength) {
      all.push_back(p);
      return;
    }
    target_.row(text.ids[text.ids.size() - 2], text.ids.back(), row_);
    const std::vector<double> next = test::reference_distribution(options, text, row_);
    for (const std::uint32_t id : kIds) {
      test::ReferenceText longer = text;
      longer.ids.push_back(id);
      extend(options, longer, p * next[id], all);
    }
  }
  static std::size_t index_of(const Ids& answer) {
    std::size_t index = 0;
    for (const std::uint32_t id : answer) index = index * kKinds + kind_of(id);
    return index;
  }

  const Ids kEnd = {199};
  ThreadPool pool_{1};
  MemoryLedger ledger_;
  std::unique_ptr<CpuDevice> device_;
  SamplerScratch scratch_;
  TableModel target_{1, 1.2f};
  TableModel draft_ = target_.blurred(2);
  std::vector<float> row_;
  std::uint64_t chosen_ = 0;
  std::uint64_t accepted_ = 0;
};

TEST_F(SampledAcceptance, TextsHaveTheTargetsDistribution) {
  const char* full = std::getenv("DRAFTHOUSE_FULL");
  const std::uint32_t draws = full != nullptr && *full == '1' ? 1000000 : 20000;
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(setting.name);
    accepted_ = 0;
    std::vector<double> counts(kKinds * kKinds * kKinds);
    for (std::uint32_t seed = 0; seed < draws; ++seed) {
      ++counts[index_of(answer(setting.options, seed, 3))];
    }
    const double p = test::fit_p(counts, exact(setting.options), draws);
    EXPECT_GT(p, 0.001);
    std::printf("%s: %u answers, p %.4f, %llu proposals stood\n", setting.name, draws, p,
                static_cast<unsigned long long>(accepted_));
    // The draft had a part in it.
    EXPECT_GT(accepted_, draws / 4);
  }
}

TEST_F(SampledAcceptance, OneSeedGivesOneTextForEveryWidth) {
  for (const Setting& setting : settings()) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const Ids plain = answer(setting.options, seed, 1);
      for (const std::uint32_t width : {2u, 3u, 5u}) {
        ASSERT_EQ(answer(setting.options, seed, width), plain) << setting.name << " " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace drafthouse
