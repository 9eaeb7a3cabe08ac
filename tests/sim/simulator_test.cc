#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/sim/world.h"

namespace drafthouse {
namespace {

std::uint32_t asked_for() {
  const char* seed = std::getenv("DRAFTHOUSE_SIM_SEED");
  return seed != nullptr ? static_cast<std::uint32_t>(std::strtoul(seed, nullptr, 10)) : 0;
}

// DRAFTHOUSE_SIM_SEED runs one schedule.
TEST(Simulator, RandomSchedulesHoldWhatIsPromised) {
  const std::uint32_t only = asked_for();
  const std::uint32_t schedules = only != 0                                   ? 1
                                  : std::getenv("DRAFTHOUSE_FULL") != nullptr ? 5000
                                                                              : 300;
  World::Counts all;
  for (std::uint32_t i = 0; i < schedules; ++i) {
    const std::uint32_t seed = only != 0 ? only : 1 + i;
    World world(seed);
    ASSERT_EQ(world.run(), "") << "seed " << seed << "; again: DRAFTHOUSE_SIM_SEED=" << seed
                               << " build/release/bin/simulator_test";
    const World::Counts& counts = world.counts();
    all.tasks += counts.tasks;
    all.finished += counts.finished;
    all.cancelled += counts.cancelled;
    all.no_memory += counts.no_memory;
    all.hits += counts.hits;
    all.disk_hits += counts.disk_hits;
    all.disk_faults += counts.disk_faults;
    all.hook_conflicts += counts.hook_conflicts;
    all.hooks_busy += counts.hooks_busy;
    all.loads += counts.loads;
    all.preempted += counts.preempted;
    all.rebuilds += counts.rebuilds;
    all.conflicts += counts.conflicts;
    all.evictions += counts.evictions;
    all.chunks += counts.chunks;
    all.steps += counts.steps;
    all.given_up_chunks += counts.given_up_chunks;
  }
  const std::pair<const char*, std::uint64_t> figures[] = {
      {"tasks", all.tasks},
      {"finished", all.finished},
      {"cancelled", all.cancelled},
      {"without memory", all.no_memory},
      {"hits", all.hits},
      {"hits on disk", all.disk_hits},
      {"disk faults", all.disk_faults},
      {"loads", all.loads},
      {"preempted", all.preempted},
      {"rebuilds", all.rebuilds},
      {"conflicts of caches", all.conflicts},
      {"conflicts of hooks", all.hook_conflicts},
      {"hooks in use", all.hooks_busy},
      {"evictions", all.evictions},
      {"chunks", all.chunks},
      {"steps", all.steps},
      {"chunks that gave way", all.given_up_chunks},
  };
  std::printf("%u schedules", schedules);
  for (const auto& [name, count] : figures) std::printf(", %lu %s", count, name);
  std::printf("\n");
  if (only != 0) return;
  // What never happened was not tested.
  for (const auto& [name, count] : figures) {
    EXPECT_GT(count, 0u) << name;
  }
}

}  // namespace
}  // namespace drafthouse
