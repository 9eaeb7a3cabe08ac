#include "device/work_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace drafthouse {
namespace {

TEST(WorkRanges, OneThreadTakesEverythingInOrderOfItsStretches) {
  WorkRanges ranges(3);
  ranges.reset(100);
  std::uint32_t own = 33;
  std::vector<bool> seen(100);
  for (;;) {
    const WorkRanges::Range range = ranges.take(1, 4);
    if (range.empty()) break;
    EXPECT_LE(range.end - range.begin, 4u);
    if (own < 66) {
      EXPECT_EQ(range.begin, own) << "its own stretch comes first and is one stream";
      own = range.end;
    }
    for (std::uint32_t unit = range.begin; unit < range.end; ++unit) {
      EXPECT_FALSE(seen[unit]);
      seen[unit] = true;
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 100);
}

TEST(WorkRanges, NoUnitIsTakenTwiceAndNoneIsLeft) {
  constexpr unsigned kThreads = 4;
  WorkRanges ranges(kThreads);
  for (const std::uint32_t units : {0u, 1u, 3u, 7u, 64u, 1000u}) {
    for (int round = 0; round < 50; ++round) {
      ranges.reset(units);
      std::vector<std::atomic<int>> taken(units);
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (;;) {
            const WorkRanges::Range range = ranges.take(t, 1 + t);
            if (range.empty()) return;
            for (std::uint32_t unit = range.begin; unit < range.end; ++unit) ++taken[unit];
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (std::uint32_t unit = 0; unit < units; ++unit) EXPECT_EQ(taken[unit].load(), 1) << unit;
    }
  }
}

}  // namespace
}  // namespace drafthouse
