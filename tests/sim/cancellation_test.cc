// Requests that are cancelled at random moments of every phase: they end at once, hold nothing, and
// their neighbours' ids are those of the model alone.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "pool/pool.h"
#include "tests/sim/fake_pair.h"
#include "tests/sim/random.h"

namespace drafthouse {
namespace {

enum class Phase : std::uint8_t { queued, prefilling, decoding, storing };

struct Neighbour {
  std::vector<std::uint32_t> prompt;
  std::uint32_t max_tokens = 0;
  std::shared_ptr<RecordedEvents> events;
};

// One schedule: the victim is cancelled at the `moment`-th chance that its phase offers. Returns
// whether there was such a chance.
bool cancel_once(std::uint32_t seed, Phase phase) {
  Random random(seed);
  FakeModel model = drafting(random.below(101));
  model.seed = seed;
  FakePair pair({.model = model,
                 .limits = {.context = 1024,
                            .prefill_chunk = 64,
                            .choices = 1000,
                            .sequences = phase == Phase::queued ? 2u : 4u},
                 .cache = random.percent(70),
                 .relief = true});
  std::vector<Neighbour> neighbours(2 + random.below(2));
  for (Neighbour& each : neighbours) {
    each.prompt = fake_text(random.below(3), 60 + random.below(200));
    each.max_tokens = 10 + random.below(60);
    each.events = pair.submit(each.prompt, each.max_tokens, random.below(9));
  }
  for (std::uint32_t turns = random.below(12); turns > 0; --turns) pair.turn();

  auto events = std::make_shared<RecordedEvents>();
  const auto prompt = fake_text(random.below(4), 150 + random.below(200));
  auto victim = pair.task(prompt, 20 + random.below(40), random.below(9), events);
  EXPECT_TRUE(pair.scheduler->submit(victim).ok());
  std::uint32_t moment = 1 + random.below(phase == Phase::prefilling ? 12 : 30);
  double cancelled_s = 0;
  const auto cancel = [&] {
    if (cancelled_s != 0 || --moment > 0) return;
    cancelled_s = pair.clock.now_s();
    victim->cancelled = true;
    pair.scheduler->interrupt() = true;
  };
  const auto in_phase = [&] {
    switch (phase) {
      case Phase::queued: return events->starts == 0;
      case Phase::prefilling: return events->starts > 0 && events->ids.empty();
      case Phase::decoding: return !events->ids.empty();
      case Phase::storing: return false;
    }
    return false;
  };
  pair.runner->on_layer = [&] {
    if (events->ends == 0 && in_phase()) cancel();
  };
  // Between the ids of a pass and what is stored for them.
  if (phase == Phase::storing) events->on_tokens = cancel;
  double ended_s = 0;
  events->on_end = [&] { ended_s = pair.clock.now_s(); };
  pair.run_all();

  EXPECT_EQ(events->ends, 1);
  const auto right = model.answer(prompt, victim->request.max_tokens);
  EXPECT_LE(events->result.ids.size(), right.size());
  EXPECT_TRUE(std::equal(events->result.ids.begin(), events->result.ids.end(), right.begin()));
  EXPECT_EQ(events->result.ids, events->ids);
  if (cancelled_s != 0) {
    EXPECT_TRUE(phase == Phase::storing || events->status.code() == Code::cancelled);
    // The flag is set at the end of a layer; not even the next one runs.
    EXPECT_EQ(ended_s, cancelled_s);
  }
  for (const Neighbour& each : neighbours) {
    EXPECT_TRUE(each.events->status.ok());
    EXPECT_EQ(each.events->ends, 1);
    EXPECT_EQ(each.events->result.ids, model.answer(each.prompt, each.max_tokens));
  }
  EXPECT_TRUE(pair.cache->clear_all().ok());
  EXPECT_EQ(pair.held_pages(), 0u);
  EXPECT_EQ(pair.cache->active_requests(), 0u);
  return cancelled_s != 0;
}

TEST(Cancellation, FiveHundredAtRandomOverAllPhases) {
  constexpr std::array kPhases{Phase::queued, Phase::prefilling, Phase::decoding, Phase::storing};
  std::array<int, kPhases.size()> hit{};
  int all = 0;
  for (std::uint32_t seed = 1; all < 500 && seed < 2000; ++seed) {
    const std::size_t which = seed % kPhases.size();
    if (cancel_once(seed, kPhases[which])) {
      ++hit[which];
      ++all;
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_EQ(all, 500);
  for (const int count : hit) EXPECT_GT(count, 50);
}

TEST(Cancellation, WhileItsPrefixIsReadFromDisk) {
  std::string folder = (std::filesystem::temp_directory_path() / "dh-cancel-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const FakeModel model = drafting();
    FakePair pair({.model = model, .cache = true, .disk = folder + "/cache"});
    const auto prompt = fake_text(1, 400);
    const auto other = fake_text(2, 300);
    pair.submit(prompt, 20, 4);
    pair.run_all();
    for (std::uint32_t i = 0; i < 40; ++i) {
      ASSERT_TRUE(pair.cache->flush(60).ok());
      while (pair.cache->evict(false) > 0) {
      }
      auto events = std::make_shared<RecordedEvents>();
      auto victim = pair.task(prompt, 20, 4, events);
      ASSERT_TRUE(pair.scheduler->submit(victim).ok());
      const auto neighbour = pair.submit(other, 10, 4);
      pair.turn();
      ASSERT_FALSE(pair.background.empty()) << "nothing is read from disk";
      const auto read = std::move(pair.background.front());
      pair.background.erase(pair.background.begin());
      // Before the read, after it, and when the read comes back to nobody.
      if (i % 3 == 1) read();
      victim->cancelled = true;
      pair.turn();
      EXPECT_EQ(events->ends, 1);
      EXPECT_EQ(events->status.code(), Code::cancelled);
      EXPECT_TRUE(events->ids.empty());
      if (i % 3 == 2) read();
      for (int turn = 0; turn < 2000 && !pair.scheduler->idle(); ++turn) {
        for (const auto& work : std::exchange(pair.background, {})) work();
        pair.turn();
      }
      EXPECT_EQ(neighbour->result.ids, model.answer(other, 10));
      EXPECT_EQ(pair.cache->active_requests(), 0u);
    }
    ASSERT_TRUE(pair.cache->clear_all().ok());
    (void)pair.scheduler->next();
    EXPECT_EQ(pair.held_pages(), 0u);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

// Loading: the request leaves while its model is loaded.
class SlowLoader final : public EngineLoader {
 public:
  std::function<void()> on_layer = {};
  Result<MemoryNeed> estimate(const ModelSpec&) override { return MemoryNeed{}; }
  Result<std::shared_ptr<ModelEngine>> load(const ModelSpec&,
                                            const std::atomic<bool>* cancel) override {
    ++loads;
    for (int layer = 0; layer < 10; ++layer) {
      on_layer();
      if (cancel->load()) return Status(Code::cancelled, "nobody wants it");
      ++layers;
    }
    return std::shared_ptr<ModelEngine>(std::make_shared<Engine>());
  }
  int loads = 0;
  int layers = 0;

 private:
  struct Engine final : public ModelEngine {
    std::size_t active() const override { return 0; }
    void stop(const Status&) override {}
    std::size_t exclusive_bytes() const override { return 0; }
    Status release(bool, double) override { return {}; }
  };
};

struct LoadingRequest final : public PoolRequest {
  Status start(ModelEngine&) override {
    ++starts;
    return {};
  }
  void fail(const Status& status) override {
    ++fails;
    why = status;
  }
  double deadline_s() const override { return 0; }
  int starts = 0;
  int fails = 0;
  Status why;
};

TEST(Cancellation, WhileTheModelIsLoading) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    FakeClock clock;
    MemoryBudget budget;
    SlowLoader loader;
    PoolOptions options;
    options.own_thread = false;
    Pool pool(loader, budget, clock, options);
    ASSERT_TRUE(pool.add({.name = "m", .target = "m.gguf"}).ok());
    auto victim = std::make_shared<LoadingRequest>();
    auto neighbour = std::make_shared<LoadingRequest>();
    const bool alone = random.percent(50);
    ASSERT_TRUE(pool.submit("m", victim).ok());
    if (!alone) {
      ASSERT_TRUE(pool.submit("m", neighbour).ok());
    }
    int moment = 1 + static_cast<int>(random.below(10));
    const int at = moment;
    loader.on_layer = [&] {
      if (--moment != 0) return;
      EXPECT_TRUE(pool.withdraw("m", victim.get(), Status(Code::cancelled, "left")));
      EXPECT_EQ(victim->fails, 1) << "at once, not when the load ends";
    };
    while (pool.work_once()) {
    }
    EXPECT_EQ(victim->starts, 0);
    EXPECT_EQ(victim->fails, 1);
    EXPECT_EQ(loader.loads, 1);
    if (alone) {
      EXPECT_EQ(loader.layers, at - 1) << "a load that nobody wants ends within a layer";
      EXPECT_EQ(pool.entry("m").value().state, ModelState::registered);
    } else {
      EXPECT_EQ(neighbour->starts, 1);
      EXPECT_EQ(neighbour->fails, 0);
    }
  }
}

}  // namespace
}  // namespace drafthouse
