#include "engine/step_order.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/sim/random.h"

namespace drafthouse {
namespace {

using Kind = StepOrder::Kind;
using Member = StepOrder::Member;

TEST(StepOrder, BusyMembersShareTheDeviceByWeight) {
  StepOrder order;
  const Member light = order.join(1);
  const Member heavy = order.join(3);
  std::map<Member, double> used;
  for (const Member each : {light, heavy}) order.ask(each, Kind::step);
  for (int i = 0; i < 400; ++i) {
    const Member next = order.next();
    ASSERT_NE(next, 0u);
    order.enter(next);
    order.exit(next, 0.25);
    used[next] += 0.25;
    // The other one must not slip in before this one is back.
    order.ask(next, Kind::step);
  }
  EXPECT_NEAR(used[heavy] / used[light], 3.0, 0.1);
}

TEST(StepOrder, AMemberThatComesBackAtOnceKeepsItsPlace) {
  StepOrder order;
  const Member light = order.join(1);
  const Member heavy = order.join(4);
  order.ask(light, Kind::step);
  order.enter(light);
  order.ask(heavy, Kind::step);
  order.exit(light, 1);
  order.ask(light, Kind::step);
  ASSERT_EQ(order.next(), heavy);
  order.enter(heavy);
  order.exit(heavy, 1);
  EXPECT_EQ(order.next(), 0u) << "heavy has used less, and comes back";
  order.rest(heavy);
  EXPECT_EQ(order.next(), light) << "heavy has nothing to do";
}

TEST(StepOrder, TimeWithoutWorkIsNotSavedUp) {
  StepOrder order;
  const Member old = order.join(1);
  const Member idle = order.join(1);
  for (int i = 0; i < 100; ++i) {
    order.ask(old, Kind::chunk);
    order.enter(old);
    order.exit(old, 10);
  }
  const Member fresh = order.join(1);
  for (const Member each : {old, idle, fresh}) order.ask(each, Kind::step);
  std::map<Member, int> turns;
  for (int i = 0; i < 30; ++i) {
    const Member next = order.next();
    ASSERT_NE(next, 0u);
    order.enter(next);
    order.exit(next, 10);
    order.ask(next, Kind::step);
    ++turns[next];
  }
  for (const Member each : {old, idle, fresh}) EXPECT_GE(turns[each], 9);
  // After everybody rested, nobody comes with less than the one who came last.
  for (const Member each : {old, idle, fresh}) order.rest(each);
  order.ask(idle, Kind::step);
  order.enter(idle);
  order.exit(idle, 0.001);
  order.ask(idle, Kind::step);
  order.ask(old, Kind::step);
  order.enter(order.next());
}

TEST(StepOrder, AmongEqualsTheOneThatWaitsLongestGoesFirst) {
  StepOrder order;
  std::vector<Member> all{order.join(1), order.join(1), order.join(1)};
  for (const Member each : all) order.ask(each, Kind::step);
  std::vector<Member> turns;
  for (int i = 0; i < 6; ++i) {
    const Member next = order.next();
    order.enter(next);
    order.exit(next, 0);
    order.ask(next, Kind::step);
    turns.push_back(next);
  }
  EXPECT_EQ(turns, (std::vector<Member>{all[0], all[1], all[2], all[0], all[1], all[2]}));
}

TEST(StepOrder, AForeignChunkWaitsForAStepOfEveryStream) {
  StepOrder order;
  const Member stream = order.join(1);
  const Member prefill = order.join(100);
  order.set_streaming(stream, true);
  order.ask(prefill, Kind::chunk);
  ASSERT_EQ(order.next(), prefill);
  order.enter(prefill);
  order.exit(prefill, 0.2);
  order.ask(prefill, Kind::chunk);
  EXPECT_EQ(order.next(), 0u) << "one foreign chunk has run";
  order.ask(stream, Kind::step);
  ASSERT_EQ(order.next(), stream);
  order.enter(stream);
  order.exit(stream, 0.01);
  EXPECT_EQ(order.next(), prefill);
  order.enter(prefill);
  order.exit(prefill, 0.2);
  order.set_streaming(stream, false);
  order.rest(stream);
  order.ask(prefill, Kind::chunk);
  EXPECT_EQ(order.next(), prefill) << "no stream waits any more";
}

TEST(StepOrder, StreamsThatAlsoPrefillDoNotWaitForEachOther) {
  StepOrder order;
  const Member a = order.join(1);
  const Member b = order.join(1);
  const Member c = order.join(1);
  order.set_streaming(a, true);
  order.set_streaming(b, true);
  order.ask(c, Kind::chunk);
  order.enter(c);
  order.ask(a, Kind::chunk);
  order.ask(b, Kind::chunk);
  order.exit(c, 0.2);
  order.rest(c);
  EXPECT_TRUE(order.step_due(a));
  EXPECT_TRUE(order.step_due(b));
  EXPECT_EQ(order.next(), 0u);
  order.withdraw(a);
  order.ask(a, Kind::step);
  EXPECT_EQ(order.next(), a);
}

// Engines at random: at any time somebody can go on, everybody does, and no stream sees two foreign
// chunks between two of its steps.
TEST(StepOrder, RandomSchedulesNeitherStarveNorCrowd) {
  struct Engine {
    Member member = 0;
    bool streaming = false;
    bool asking = false;
    bool prefers_chunk = false;
    int foreign_chunks = 0;
    int waited = 0;
    int entries = 0;
  };
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    StepOrder order;
    std::vector<Engine> engines(2 + random.below(4));
    for (Engine& each : engines) {
      each.member = order.join(1 + random.below(4));
      each.streaming = random.percent(60);
      order.set_streaming(each.member, each.streaming);
    }
    for (int tick = 0; tick < 400; ++tick) {
      for (Engine& each : engines) {
        if (each.asking) continue;
        if (random.percent(10)) {
          each.streaming = !each.streaming;
          each.foreign_chunks = 0;
          order.set_streaming(each.member, each.streaming);
        }
        const bool chunk = !each.streaming || (random.percent(50) && !each.prefers_chunk);
        each.prefers_chunk = chunk;
        each.asking = true;
        order.ask(each.member, chunk ? Kind::chunk : Kind::step);
      }
      for (Engine& each : engines) {
        if (!order.step_due(each.member)) continue;
        each.prefers_chunk = false;
        order.withdraw(each.member);
        order.ask(each.member, Kind::step);
      }
      const Member next = order.next();
      ASSERT_NE(next, 0u) << "deadlock, seed " << seed;
      order.enter(next);
      for (Engine& each : engines) {
        if (each.member == next) {
          const bool step = !each.prefers_chunk;
          if (step) each.foreign_chunks = 0;
          each.asking = false;
          each.waited = 0;
          ++each.entries;
          order.exit(next, step ? 0.01 * (1 + random.below(3)) : 0.2);
          if (step) continue;
          for (Engine& other : engines) {
            if (other.member == next || !other.streaming) continue;
            ASSERT_LE(++other.foreign_chunks, 1) << "seed " << seed;
          }
        } else {
          ++each.waited;
          ASSERT_LT(each.waited, 350) << "starved, seed " << seed;
        }
      }
    }
    for (const Engine& each : engines) EXPECT_GT(each.entries, 0) << seed;
  }
}

}  // namespace
}  // namespace drafthouse
