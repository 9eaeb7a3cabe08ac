#include "turn/width_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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

struct SimulatedBatch {
  double seconds = 0;
  double ids = 0;
  std::vector<double> own;  // ids of each sequence
  std::uint32_t widest = 0;
};

// Sequences whose proposals are right with the given probabilities, all in the same passes.
SimulatedBatch simulate_batch(const CostTable& costs, const std::vector<double>& rates,
                              double ids_each, unsigned seed) {
  std::vector<WidthPolicy> policies(rates.size(), WidthPolicy(costs, 16));
  WidthChooser chooser(costs, 16);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  SimulatedBatch run;
  run.own.resize(rates.size());
  while (run.ids < ids_each * static_cast<double>(rates.size())) {
    std::vector<WidthChoice> choices;
    for (const WidthPolicy& policy : policies) choices.push_back({.policy = &policy, .room = 1000});
    chooser.choose(choices);
    BatchShape shape{.sequences = static_cast<std::uint32_t>(rates.size()), .rows = 0};
    for (const WidthChoice& choice : choices) {
      shape.rows += choice.width;
      if (choice.width > 1) ++shape.drafting;
      run.widest = std::max(run.widest, choice.width);
    }
    const double seconds = costs.turn(shape);
    run.seconds += seconds;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      std::uint32_t gained = 1;
      while (gained < choices[i].width && uniform(random) < rates[i]) ++gained;
      policies[i].observe(choices[i].width, gained, seconds, shape);
      run.own[i] += gained;
      run.ids += gained;
    }
  }
  return run;
}

// Rows are nearly free up to a point and then cost by the row.
CostTable batch_table(double free_rows, double draft, double draft_block) {
  std::vector<CostTable::Point> verify;
  for (const std::uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
    verify.push_back({rows, std::max(1.0 + 0.002 * rows, rows / free_rows)});
  }
  return CostTable(std::move(verify), {{2, draft}, {16, draft}},
                   {{1, draft}, {2, draft + draft_block}, {4, draft + 3 * draft_block}});
}

TEST(CostTable, GoesOnAsItRoseButNeverDearerByTheRow) {
  const CostTable flat({{1, 1.0}, {16, 1.1}}, {});
  EXPECT_NEAR(flat.verify(32), 1.1 + 16 * 0.1 / 15, 1e-9);
  const CostTable steep({{1, 1.0}, {16, 10.0}, {32, 30.0}}, {});
  EXPECT_NEAR(steep.verify(64), 60.0, 1e-9);
}

TEST(WidthChooser, OneSequenceIsItsPolicysOwnChoice) {
  for (const double verify16 : {1.1, 2.0, 6.0}) {
    const CostTable costs = table(1.0 + (verify16 - 1.0) / 2, verify16, 0.4);
    WidthPolicy policy(costs, 16);
    WidthChooser chooser(costs, 16);
    std::mt19937 random(1);
    for (int turn = 0; turn < 200; ++turn) {
      const auto room = static_cast<std::uint32_t>(1 + random() % 30);
      WidthChoice choice{.policy = &policy, .room = room};
      chooser.choose({&choice, 1});
      EXPECT_EQ(choice.width, policy.choose(room));
      const auto gained = static_cast<std::uint32_t>(1 + random() % choice.width);
      policy.observe(choice.width, gained, costs.turn(choice.width));
    }
  }
}

TEST(WidthChooser, ABatchStaysCloseToPlainOrBetter) {
  for (const double free_rows : {2.0, 8.0, 40.0}) {
    const CostTable costs = batch_table(free_rows, 0.4, 0.2);
    for (const std::size_t count : {2u, 5u, 16u}) {
      const double plain = costs.verify(static_cast<std::uint32_t>(count));
      for (const double rate : {0.0, 0.2, 0.5, 0.8}) {
        for (unsigned seed = 0; seed < 4; ++seed) {
          std::vector<double> rates(count, rate);
          rates[0] = 0.0;
          const SimulatedBatch run = simulate_batch(costs, rates, 96, seed);
          EXPECT_LE(run.seconds, run.ids / static_cast<double>(count) * plain / 0.97)
              << free_rows << " " << count << " " << rate;
        }
      }
    }
  }
}

TEST(WidthChooser, RowsGoToTheSequencesThatMakeUseOfThem) {
  const CostTable costs = batch_table(24.0, 0.2, 0.05);
  const SimulatedBatch run = simulate_batch(costs, {0.95, 0.05, 0.95, 0.05}, 200, 1);
  EXPECT_GT(run.own[0], 2.0 * run.own[1]);
  EXPECT_GT(run.own[2], 2.0 * run.own[3]);
  EXPECT_LT(run.seconds, 0.5 * run.ids / 4.0 * costs.verify(4));
}

TEST(WidthChooser, AFullMachineDecodesPlainly) {
  const CostTable costs = batch_table(2.0, 0.5, 0.4);
  const SimulatedBatch run = simulate_batch(costs, std::vector<double>(16, 0.6), 50, 1);
  EXPECT_EQ(run.widest, 1u);
}

TEST(WidthChooser, FixedWidthsAndRoomAreKept) {
  const CostTable costs = batch_table(100.0, 0.05, 0.01);
  WidthPolicy policy(costs, 16);
  WidthChooser chooser(costs, 16);
  std::vector<WidthChoice> choices = {{.width = 7},
                                      {.policy = &policy, .room = 3},
                                      {.policy = &policy, .room = 1},
                                      {.policy = &policy, .room = 100}};
  chooser.choose(choices);
  EXPECT_EQ(choices[0].width, 7u);
  EXPECT_LE(choices[1].width, 3u);
  EXPECT_GT(choices[1].width, 1u);
  EXPECT_EQ(choices[2].width, 1u);
  EXPECT_GT(choices[3].width, 3u);
  const CostTable plain({{1, 1.0}, {16, 1.1}}, {});
  const WidthPolicy none(plain, 16);
  choices = {{.policy = &none, .room = 9}, {.policy = &none, .room = 9}};
  WidthChooser(plain, 16).choose(choices);
  EXPECT_EQ(choices[0].width, 1u);
}

}  // namespace
}  // namespace drafthouse
