// Ids over every path: speculation × cache × neighbours × family. Each cell that is named after a
// tier asserts that tier and that it matched something. ./test runs a seeded share, ./test --full
// all of it.

#include <gtest/gtest.h>

#include <random>

#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

constexpr std::uint32_t kAnswer = 24;

// Every second prompt's ids are drawn.
SamplingOptions sampling_of(std::size_t prompt) {
  SamplingOptions options;
  if (prompt % 2 == 0) return options;
  options.temperature = 0.8f;
  options.top_p = 0.95f;
  options.repetition_penalty = 1.1f;
  options.seed = 100 + prompt;
  return options;
}

// Prompts of an agent: one system prompt, chats that grow, branches of them, edited tails.
std::vector<std::vector<std::uint32_t>> agent_prompts(std::size_t count) {
  std::vector<std::vector<std::uint32_t>> prompts;
  const auto system = long_prompt(1, 150);
  std::mt19937 random(5);
  while (prompts.size() < count) {
    std::vector<std::uint32_t> text = system;
    const std::size_t kind = prompts.size() % 4;
    if (kind != 0 && prompts.size() >= 4) {
      text = prompts[random() % prompts.size()];
      if (kind == 2) text.resize(text.size() - text.size() / 3);  // a branch
      if (kind == 3) text[text.size() - 1 - random() % 40] ^= 1;  // an edited tail
    }
    const auto more = long_prompt(static_cast<std::uint32_t>(random() % 500), 30 + random() % 120);
    text.insert(text.end(), more.begin(), more.end());
    if (text.size() > 700) text.resize(700);
    prompts.push_back(std::move(text));
  }
  return prompts;
}

class Matrix {
 public:
  // `share`: prompts of a run that is not full.
  explicit Matrix(ModelSpec spec, std::size_t share)
      : spec_(std::move(spec)), share_(share), folder_("dh_matrix_" + spec_.name) {
    spec_.cache.disk_directory = folder_.path();
    spec_.cache.disk_free_bytes = 0;
    std::vector<std::vector<std::uint32_t>> all = agent_prompts(24);
    // Every prompt of a full run; of a quick one a few, always the same.
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (full_run() || (i % 8 == 5 && prompts_.size() < share)) prompts_.push_back(all[i]);
    }
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      expected_.push_back(alone(spec_, prompts_[i], kAnswer, sampling_of(i)));
    }
  }

  void run_all() {
    for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
      for (const bool beside : {false, true}) {
        if (!full_run() && beside != (width == 4 || width == 0) && share_ == 1) continue;
        SCOPED_TRACE(spec_.name + ", width " + std::to_string(width) +
                     (beside ? ", 8 beside it" : ", alone"));
        width_ = width;
        beside_ = beside;
        salt_ = std::to_string(width) + (beside ? "b" : "a");
        cells();
      }
    }
    EXPECT_GT(compared_, 0u);
  }

 private:
  void cells() {
    auto host = make_host();
    ASSERT_TRUE(host->load(spec_).ok());
    each(*host, "none", false);
    each(*host, "ram", true);
    ASSERT_TRUE(host->flush_cache(120).ok());
    // Nothing stays in RAM: every hit comes from disk.
    CacheConfig starved = spec_.cache;
    starved.ram_bytes = 1;
    ASSERT_TRUE(host->reconfigure(spec_.name, starved).ok());
    each(*host, "disk", true);
    ASSERT_TRUE(host->reconfigure(spec_.name, spec_.cache).ok());
    // Evicted from the pool and loaded again by the next request: what is kept in RAM comes from
    // there.
    each(*host, "disk", true);
    ASSERT_TRUE(host->unload(spec_.name, {.deadline_s = 30, .keep_cache = true}).ok());
    each(*host, "ram", true);
    ASSERT_TRUE(host->unload(spec_.name, {.deadline_s = 30, .keep_cache = false}).ok());
    each(*host, "disk", true);
    host = make_host();
    ASSERT_TRUE(host->load(spec_).ok());
    each(*host, "disk", true);
  }

  // Every prompt once, under a salt of its own, so that its tier is its own doing.
  void each(Host& host, const std::string& tier, bool hit) {
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      std::vector<std::unique_ptr<Stream>> neighbours;
      for (std::uint32_t n = 0; beside_ && n < 8; ++n) {
        SubmitRequest other =
            request(spec_.name, long_prompt(n + 900, 40 + 30 * n), 40, n % 3 == 0 ? 1 : 0);
        other.salt = "neighbours";
        neighbours.push_back(host.submit(other).value());
      }
      SubmitRequest wanted = request(spec_.name, prompts_[i], kAnswer, width_);
      wanted.salt = salt_ + std::to_string(i);
      wanted.sampling = sampling_of(i);
      const Event end = test::run(host, wanted);
      ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
      EXPECT_EQ(end.result.ids, expected_[i]) << "prompt " << i << ", tier " << tier;
      EXPECT_EQ(end.result.cache.tier, tier) << "prompt " << i << ": " << end.result.cache.reason;
      EXPECT_EQ(end.result.cache.matched_tokens > 0, hit) << "prompt " << i;
      ++compared_;
    }
  }

  ModelSpec spec_;
  std::size_t share_;
  ScratchFolder folder_;
  std::vector<std::vector<std::uint32_t>> prompts_;
  std::vector<std::vector<std::uint32_t>> expected_;
  std::uint32_t width_ = 0;
  bool beside_ = false;
  std::string salt_;
  std::size_t compared_ = 0;
};

TEST(Matrix, Qwen3) { Matrix(nano_spec("qwen3"), 2).run_all(); }

// Sliding and full layers.
TEST(Matrix, Gemma4) { Matrix(pair_spec("gemma4", "nano-gemma4"), 2).run_all(); }

TEST(Matrix, Qwen3Gguf) { Matrix(gguf_spec("qwen3-gguf"), 2).run_all(); }

TEST(Matrix, Qwen35) { Matrix(pair_spec("qwen3_5", "nano-qwen3_5"), 2).run_all(); }

TEST(Matrix, Llama) {
  if (default_model().empty())
    GTEST_SKIP() << "the default model has not been fetched (tools/fetch_default_model)";
  Matrix(default_spec("llama"), 1).run_all();
}

}  // namespace
}  // namespace drafthouse
