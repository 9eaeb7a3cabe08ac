#include "turn/width_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace drafthouse {
namespace {

CostTable table(double verify8, double verify16, double draft) {
  return CostTable({{1, 1.0}, {8, verify8}, {16, verify16}}, {{2, draft}, {16, draft}});
}

struct Simulated {
  double seconds = 0;
  double ids = 0;
  std::uint32_t widest = 0;
};

// A draft whose every proposal is right with probability `rate`, until `ids` have been produced.
Simulated simulate(const CostTable& costs, double rate, double ids, unsigned seed) {
  WidthPolicy policy(costs, 16);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  Simulated run;
  while (run.ids < ids) {
    const std::uint32_t width = policy.choose(1000);
    std::uint32_t gained = 1;
    while (gained < width && uniform(random) < rate) ++gained;
    const double seconds = costs.turn(width);
    policy.observe(width, gained, seconds);
    run.seconds += seconds;
    run.ids += gained;
    run.widest = std::max(run.widest, width);
  }
  return run;
}

TEST(WidthPolicy, AUselessDraftCostsNextToNothing) {
  for (const double verify16 : {1.05, 1.8, 6.0, 15.0}) {
    const CostTable costs = table(1.0 + (verify16 - 1.0) / 2, verify16, 0.4);
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Simulated run = simulate(costs, 0.0, 64, seed);
      EXPECT_LE(run.seconds, run.ids / 0.97) << verify16;
    }
  }
}

TEST(WidthPolicy, AnyDraftStaysCloseToPlainOrBetter) {
  for (const double rate : {0.1, 0.3, 0.5, 0.7}) {
    for (const double verify16 : {1.2, 2.0, 5.0}) {
      const CostTable costs = table(1.0 + (verify16 - 1.0) / 2, verify16, 0.5);
      for (unsigned seed = 0; seed < 20; ++seed) {
        const Simulated run = simulate(costs, rate, 96, seed);
        EXPECT_LE(run.seconds, run.ids / 0.97) << rate << " " << verify16;
      }
    }
  }
}

TEST(WidthPolicy, AGoodDraftIsUsedWide) {
  const CostTable costs = table(1.05, 1.1, 0.3);
  const Simulated run = simulate(costs, 0.95, 200, 1);
  EXPECT_EQ(run.widest, 16u);
  EXPECT_LT(run.seconds, 0.35 * run.ids);
}

TEST(WidthPolicy, RoomAndMissingDraftBoundTheWidth) {
  const CostTable costs = table(1.05, 1.1, 0.1);
  WidthPolicy policy(costs, 16);
  EXPECT_LE(policy.choose(3), 3u);
  EXPECT_EQ(policy.choose(1), 1u);
  const CostTable plain({{1, 1.0}, {16, 1.1}}, {});
  EXPECT_EQ(WidthPolicy(plain, 16).choose(100), 1u);
}

TEST(SurvivalCurve, LearnsFromNarrowTurnsWhatWideOnesWouldGive) {
  SurvivalCurve curve;
  for (int i = 0; i < 50; ++i) curve.observe(3, 3);
  EXPECT_GT(curve.expected_gain(16), 10.0);
  for (int i = 0; i < 50; ++i) curve.observe(3, 0);
  EXPECT_LT(curve.expected_gain(16), 1.5);
}

}  // namespace
}  // namespace drafthouse
