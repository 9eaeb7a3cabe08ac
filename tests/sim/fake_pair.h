#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_test_pages.h"
#include "engine/scheduler.h"
#include "tests/sim/fake_runner.h"
#include "tests/sim/recorded_task.h"

namespace drafthouse {

// Four pages are one allocation from the system.
inline constexpr std::size_t kFakePageBytes = std::size_t{512} << 10;
inline constexpr std::size_t kFakeSlab = 4 * kFakePageBytes;

struct FakePairSettings {
  FakeModel model = {};
  TurnLimits limits = {.context = 2048, .prefill_chunk = 256, .choices = 1000, .sequences = 4};
  SchedulerLimits scheduler = {};
  std::size_t budget = 0;
  bool cache = false;
  bool relief = false;
  std::string disk = {};  // folder of a disk tier, or empty
};

inline FakeModel drafting(std::uint32_t right_percent = 70) {
  FakeModel model;
  model.block = 8;
  model.right_percent = right_percent;
  return model;
}

// A scheduler with a made-up model, its pages, its cache and its time.
struct FakePair {
  explicit FakePair(FakePairSettings with = {})
      : settings(with),
        budget(with.budget),
        costs({{1, 0.011}, {8, 0.018}}, {{2, 0.002}, {8, 0.003}}) {
    StateSpec spec;
    spec.layout = fake_layout(kFakePageBytes, with.model.block > 1);
    spec.draft.bytes[0] = 1;
    spec.budget = &budget;
    CacheConfig config;
    config.ram_floor_bytes = 0;
    config.disk_directory = with.disk;
    config.disk_free_bytes = 0;
    cache = CacheManager::create({.target = "t"}, config, spec, nullptr, &disks).value();
    pages = cache->pages();
    runner = std::make_unique<FakeRunner>(with.model, with.limits, pages, clock);
    if (with.relief) {
      budget.set_relief(
          [this](std::size_t, const MemoryLedger&) { return cache->evict(false) > 0; });
    }
    scheduler = std::make_unique<Scheduler>(
        SchedulerParts{
            .runner = runner.get(),
            .costs = with.model.block > 1 ? &costs : nullptr,
            .eos_ids = {with.model.eos},
            .vocab_size = with.model.vocab,
            .clock = &clock,
            .pages = pages.get(),
            .background =
                [this](std::function<void()> work) { background.push_back(std::move(work)); }},
        with.scheduler);
  }
  ~FakePair() {
    scheduler.reset();
    background.clear();
    EXPECT_TRUE(cache->retire().ok());
    const std::weak_ptr<PageStore> store = pages;
    runner.reset();
    pages.reset();
    cache.reset();
    EXPECT_TRUE(store.expired());
    EXPECT_EQ(budget.used(), 0u) << "pages leaked";
  }

  std::shared_ptr<Task> task(std::vector<std::uint32_t> prompt, std::uint32_t max_tokens,
                             std::uint32_t width, std::shared_ptr<RecordedEvents> events) {
    auto made = recorded_task(std::move(prompt), max_tokens, width, std::move(events));
    if (settings.cache) made->cache = cache;
    return made;
  }
  std::shared_ptr<RecordedEvents> submit(std::vector<std::uint32_t> prompt,
                                         std::uint32_t max_tokens, std::uint32_t width = 1) {
    auto events = std::make_shared<RecordedEvents>();
    EXPECT_TRUE(scheduler->submit(task(std::move(prompt), max_tokens, width, events)).ok());
    return events;
  }
  Scheduler::Work turn() {
    const Scheduler::Work work = scheduler->next();
    scheduler->run(work);
    EXPECT_TRUE(settings.budget == 0 || budget.used() <= settings.budget);
    return work;
  }
  void run_all() {
    for (int i = 0; i < 20000 && !scheduler->idle(); ++i) turn();
    EXPECT_TRUE(scheduler->idle()) << "it does not end";
  }
  std::size_t held_pages() const {
    std::size_t held = 0;
    for (std::size_t g = 0; g < pages->layout().groups.size(); ++g) {
      held += pages->pool(g)->pages_in_use();
    }
    return held;
  }

  FakePairSettings settings;
  FakeClock clock;
  DiskDirectories disks{posix_file_system(), clock, {}, false};
  // Reads from disk that nobody has done yet.
  std::vector<std::function<void()>> background;
  MemoryBudget budget;
  CostTable costs;
  std::shared_ptr<CacheManager> cache;
  std::shared_ptr<PageStore> pages;
  std::unique_ptr<FakeRunner> runner;
  std::unique_ptr<Scheduler> scheduler;
};

inline std::vector<std::uint32_t> fake_text(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> tokens = made_up_tokens(seed, count);
  for (std::uint32_t& token : tokens) token %= 1000;
  return tokens;
}

}  // namespace drafthouse
