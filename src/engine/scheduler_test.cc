#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "tests/sim/fake_pair.h"
#include "tests/sim/random.h"

namespace drafthouse {
namespace {

using Work = Scheduler::Work;
using Events = std::shared_ptr<RecordedEvents>;

TEST(Scheduler, AnswersAsTheModelAloneWhateverTheWidth) {
  for (const std::uint32_t width : {0u, 1u, 2u, 5u, 8u}) {
    FakePair table({.model = drafting()});
    const auto prompt = fake_text(1, 300);
    const Events events = table.submit(prompt, 100, width);
    table.run_all();
    EXPECT_EQ(events->result.ids, table.settings.model.answer(prompt, 100)) << width;
    EXPECT_EQ(events->ids, events->result.ids);
    EXPECT_EQ(events->result.finish_reason, "length");
    EXPECT_EQ(events->result.mode, width == 1 ? "plain" : "dflash");
    EXPECT_EQ(events->starts, 1);
    EXPECT_EQ(events->ends, 1);
    EXPECT_EQ(table.held_pages(), 0u);
  }
}

TEST(Scheduler, RandomMixesChangeNoId) {
  std::uint64_t adopted = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    FakeModel model = drafting(30 + 10 * (seed % 8));
    model.vocab = 60;
    model.eos = seed % 2 == 0 ? 7 : 0xffffffff;
    FakePair table({.model = model,
                    .limits = {.context = 700, .prefill_chunk = 96, .choices = 60, .sequences = 5},
                    .budget = (10 + seed % 3 * 20) * kFakeSlab,
                    .cache = true,
                    .relief = true});
    struct Case {
      std::vector<std::uint32_t> prompt;
      std::uint32_t max_tokens;
      Events events;
    };
    std::vector<Case> cases;
    const auto common = fake_text(seed, 200);
    while (cases.size() < 16 || !table.scheduler->idle()) {
      if (cases.size() < 16 && random.below(4) == 0) {
        Case one;
        if (random.percent(50)) {
          one.prompt.assign(common.begin(), common.begin() + random.below(200));
        }
        const auto number = static_cast<std::uint32_t>(cases.size());
        const auto own = fake_text(seed * 100 + number, 1 + random.below(150));
        one.prompt.insert(one.prompt.end(), own.begin(), own.end());
        for (std::uint32_t& id : one.prompt) id %= 60;
        one.max_tokens = 1 + random.below(120);
        one.events = std::make_shared<RecordedEvents>();
        auto task = table.task(one.prompt, one.max_tokens, random.below(9), one.events);
        task->priority = static_cast<int>(random.below(3));
        task->salt = random.below(3) == 0 ? "tenant" : "";
        if (random.below(5) == 0) task->cache = nullptr;
        ASSERT_TRUE(table.scheduler->submit(task).ok());
        cases.push_back(std::move(one));
      }
      table.turn();
    }
    for (const Case& one : cases) {
      ASSERT_EQ(one.events->ends, 1);
      ASSERT_TRUE(one.events->status.ok()) << seed << ": " << one.events->status.message();
      EXPECT_EQ(one.events->result.ids, model.answer(one.prompt, one.max_tokens)) << seed;
    }
    EXPECT_GT(table.runner->largest_batch, 1u);
    adopted += table.runner->adopted_pages;
  }
  EXPECT_GT(adopted, 0u);
}

TEST(Scheduler, RefusesWhatCannotBeServed) {
  FakePair table({.model = drafting()});
  auto events = std::make_shared<RecordedEvents>();
  const auto code = [&](std::vector<std::uint32_t> prompt, std::uint32_t width) {
    return table.scheduler->submit(table.task(std::move(prompt), 1, width, events)).code();
  };
  EXPECT_EQ(code({}, 1), Code::invalid_argument);
  EXPECT_EQ(code({1, 1000}, 1), Code::invalid_argument);
  EXPECT_EQ(code(fake_text(1, 2048), 1), Code::context_overflow);
  EXPECT_EQ(code(fake_text(1, 5), 9), Code::invalid_argument);
  EXPECT_TRUE(table.scheduler->idle());
  EXPECT_EQ(events->ends, 0) << "it hears nothing of a task that was not taken";
}

TEST(Scheduler, SeveralAnswersReadTheirPromptOnce) {
  for (const std::size_t length : {1u, 2u, 63u, 64u, 65u, 300u}) {
    FakePair table({.model = drafting(), .cache = true});
    const auto prompt = fake_text(1, length);
    const auto events = std::make_shared<RecordedEvents>();
    const auto task = table.task(prompt, 80, 0, events);
    task->request.n = 4;
    ASSERT_TRUE(table.scheduler->submit(task).ok());
    table.run_all();
    const auto want = table.settings.model.answer(prompt, 80);
    EXPECT_EQ(events->starts, 1);
    EXPECT_EQ(events->ends, 1);
    EXPECT_TRUE(events->status.ok());
    EXPECT_EQ(events->ids, want);
    EXPECT_EQ(events->result.ids, want);
    ASSERT_EQ(events->result.more.size(), 3u);
    for (const GenerateResult& other : events->result.more) EXPECT_EQ(other.ids, want);
    // One id leaves nothing to share.
    EXPECT_EQ(table.scheduler->counters().computed_prompt_ids, length == 1 ? 4 : length);
    EXPECT_EQ(table.runner->forks, length == 1 ? 0u : 4u);
  }
}

TEST(Scheduler, SeveralAnswersInLittleRoomAndCancelled) {
  FakePair table({.model = drafting(),
                  .limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 3},
                  .budget = 20 * kFakeSlab,
                  .relief = true});
  const auto prompt = fake_text(1, 120);
  std::vector<Events> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_shared<RecordedEvents>());
    const auto task = table.task(prompt, 200, 0, all.back());
    task->request.n = 5;
    ASSERT_TRUE(table.scheduler->submit(task).ok());
    if (i != 1) continue;
    all[1]->on_tokens = [weak = std::weak_ptr<Task>(task)] {
      if (const auto its = weak.lock()) its->cancelled = true;
    };
  }
  table.run_all();
  const auto want = table.settings.model.answer(prompt, 200);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]->ends, 1);
    EXPECT_EQ(all[i]->status.code(), i == 1 ? Code::cancelled : Code::ok);
    ASSERT_EQ(all[i]->result.more.size(), 4u);
    for (const GenerateResult& other : all[i]->result.more) {
      EXPECT_TRUE(i == 1 || other.ids == want);
    }
  }
  EXPECT_EQ(table.held_pages(), 0u);
}

TEST(Scheduler, TheLastPositionIsUsed) {
  FakePair table(
      {.model = drafting(),
       .limits = {.context = 128, .prefill_chunk = 256, .choices = 1000, .sequences = 4}});
  const auto prompt = fake_text(1, 127);
  const Events one = table.submit(prompt, 0, 8);
  const Events more = table.submit(fake_text(2, 100), 0, 8);
  table.run_all();
  EXPECT_EQ(one->result.ids, table.settings.model.answer(prompt, 1));
  EXPECT_EQ(more->result.ids, table.settings.model.answer(fake_text(2, 100), 28));
}

TEST(Scheduler, AFullQueueIsBusy) {
  FakePair table({.limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 1},
                  .scheduler = {.queue = 2}});
  table.submit(fake_text(1, 10), 5);
  table.turn();
  table.submit(fake_text(2, 10), 5);
  table.submit(fake_text(3, 10), 5);
  auto events = std::make_shared<RecordedEvents>();
  EXPECT_EQ(table.scheduler->submit(table.task(fake_text(4, 10), 5, 1, events)).code(), Code::busy);
  table.run_all();
  EXPECT_EQ(events->ends, 0);
  EXPECT_EQ(table.scheduler->counters().finished, 3u);
}

TEST(Scheduler, HigherPrioritiesComeFirstAndEqualsInOrder) {
  FakePair table(
      {.limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 1}});
  std::vector<int> order;
  for (const int priority : {0, 0, 2, 1, 2}) {
    auto events = std::make_shared<RecordedEvents>();
    auto task = table.task(fake_text(1, 10), 2, 1, events);
    task->priority = priority;
    const int number = static_cast<int>(table.scheduler->queued());
    events->on_end = [&order, number] { order.push_back(number); };
    ASSERT_TRUE(table.scheduler->submit(task).ok());
  }
  table.run_all();
  EXPECT_EQ(order, (std::vector<int>{2, 4, 3, 0, 1}));
}

TEST(Scheduler, DeadlinesEndTasksInEveryPhase) {
  FakePair table(
      {.limits = {.context = 2048, .prefill_chunk = 64, .choices = 1000, .sequences = 1}});
  auto running = std::make_shared<RecordedEvents>();
  auto waiting = std::make_shared<RecordedEvents>();
  auto first = table.task(fake_text(1, 10), 0, 1, running);
  first->deadline_s = table.clock.now_s() + 2;
  auto second = table.task(fake_text(2, 10), 0, 1, waiting);
  second->deadline_s = table.clock.now_s() + 1;
  ASSERT_TRUE(table.scheduler->submit(first).ok());
  ASSERT_TRUE(table.scheduler->submit(second).ok());
  EXPECT_EQ(table.scheduler->next_deadline(), second->deadline_s);
  table.run_all();
  EXPECT_EQ(waiting->status.code(), Code::cancelled);
  EXPECT_EQ(waiting->starts, 0);
  EXPECT_EQ(running->status.code(), Code::cancelled);
  EXPECT_GT(running->result.ids.size(), 10u) << "it holds what there was";
  EXPECT_LT(table.clock.now_s(), 3.1);
  EXPECT_EQ(table.held_pages(), 0u);
}

TEST(Scheduler, ACancelledPassEndsInThatLayerAndNeighboursGoOn) {
  for (const std::size_t tasks : {1u, 3u}) {
    for (const bool prefilling : {true, false}) {
      FakePair table({.model = drafting()});
      std::vector<Events> all;
      std::shared_ptr<Task> victim;
      for (std::uint32_t i = 0; i < tasks; ++i) {
        all.push_back(std::make_shared<RecordedEvents>());
        auto task = table.task(fake_text(i, 200), 40, 4, all.back());
        if (i == 0) victim = task;
        ASSERT_TRUE(table.scheduler->submit(task).ok());
      }
      if (!prefilling) {
        while (all.back()->ids.empty()) table.turn();
      }
      double when = 0;
      int layers = 0;
      table.runner->on_layer = [&] {
        if (++layers != 2) return;
        when = table.clock.now_s();
        victim->cancelled = true;
        table.scheduler->interrupt() = true;
      };
      double ended = 0;
      all[0]->on_end = [&] { ended = table.clock.now_s(); };
      table.turn();
      EXPECT_EQ(all[0]->ends, 0);
      (void)table.scheduler->next();
      EXPECT_EQ(all[0]->ends, 1);
      EXPECT_EQ(all[0]->status.code(), Code::cancelled);
      EXPECT_EQ(ended, when) << "no layer ran after the flag was set";
      table.runner->on_layer = {};
      table.run_all();
      for (std::uint32_t i = 1; i < tasks; ++i) {
        EXPECT_EQ(all[i]->result.ids, table.settings.model.answer(fake_text(i, 200), 40));
      }
      EXPECT_EQ(table.held_pages(), 0u);
    }
  }
}

TEST(Scheduler, AQueuedTaskIsCancelledWithoutHavingBegun) {
  FakePair table(
      {.limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 1}});
  const Events running = table.submit(fake_text(1, 10), 5);
  auto events = std::make_shared<RecordedEvents>();
  auto task = table.task(fake_text(2, 10), 5, 1, events);
  ASSERT_TRUE(table.scheduler->submit(task).ok());
  table.turn();
  task->cancelled = true;
  table.turn();
  EXPECT_EQ(events->ends, 1);
  EXPECT_EQ(events->starts, 0);
  EXPECT_EQ(events->status.code(), Code::cancelled);
  table.run_all();
  EXPECT_TRUE(running->status.ok());
}

TEST(Scheduler, PreemptionContinuesExactly) {
  FakePair table({.model = drafting(),
                  .limits = {.context = 600, .prefill_chunk = 128, .choices = 1000, .sequences = 4},
                  .budget = 8 * kFakeSlab});
  std::vector<Events> all;
  for (std::uint32_t i = 0; i < 4; ++i) all.push_back(table.submit(fake_text(i, 250), 250, 3));
  table.run_all();
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(all[i]->status.ok()) << all[i]->status.message();
    EXPECT_EQ(all[i]->result.ids, table.settings.model.answer(fake_text(i, 250), 250));
    EXPECT_EQ(all[i]->ids, all[i]->result.ids) << "nothing is told twice";
    EXPECT_EQ(all[i]->starts, 1);
  }
  EXPECT_GT(table.scheduler->counters().preempted, 0u);
}

TEST(Scheduler, ASequenceThatNeverFitsFailsAlone) {
  FakePair table(
      {.limits = {.context = 2048, .prefill_chunk = 128, .choices = 1000, .sequences = 4},
       .budget = 4 * kFakeSlab});
  const Events large = table.submit(fake_text(1, 1500), 10);
  const Events small = table.submit(fake_text(2, 100), 10);
  table.run_all();
  EXPECT_EQ(large->status.code(), Code::no_memory);
  EXPECT_TRUE(small->status.ok());
  EXPECT_EQ(table.held_pages(), 0u);
}

TEST(Scheduler, TheNextTurnOfAChatComputesOnlyWhatIsNew) {
  // The end id stands inside a block whose later proposals were right too.
  FakeModel model = drafting(100);
  const auto prompt = fake_text(1, 200);
  model.eos = model.answer(prompt, 400)[91];
  for (const std::uint32_t width : {8u, 1u, 5u}) {
    FakePair table({.model = model, .cache = true});
    const Events first = table.submit(prompt, 300, width);
    table.run_all();
    EXPECT_EQ(first->result.finish_reason, "stop");
    const auto answer = model.answer(prompt, 300);
    ASSERT_EQ(first->result.ids, answer);
    auto next = prompt;
    next.insert(next.end(), answer.begin(), answer.end());
    const std::size_t stored = (next.size() - 1) / kPageTokens;
    EXPECT_EQ(first->result.cache.stored_pages, stored);
    for (const std::uint32_t id : fake_text(5, 30)) next.push_back(id);
    const Events second = table.submit(next, 50, width);
    const std::uint64_t before = table.scheduler->counters().computed_prompt_ids;
    table.run_all();
    EXPECT_EQ(second->cache.matched_tokens, stored * kPageTokens);
    EXPECT_EQ(second->cache.tier, "ram");
    EXPECT_LE(table.scheduler->counters().computed_prompt_ids - before, 30 + kPageTokens);
    EXPECT_EQ(second->result.ids, model.answer(next, 50));
  }
}

TEST(Scheduler, ARetiredCacheDoesNotEndItsRequests) {
  FakePair table({.model = drafting(), .cache = true});
  const Events events = table.submit(fake_text(1, 200), 200, 4);
  while (events->ids.size() < 20) table.turn();
  ASSERT_TRUE(table.cache->retire().ok());
  table.run_all();
  EXPECT_EQ(events->result.ids, table.settings.model.answer(fake_text(1, 200), 200));
  EXPECT_EQ(table.cache->active_requests(), 0u);
  const Events after = table.submit(fake_text(1, 200), 5, 4);
  table.run_all();
  EXPECT_EQ(after->cache.reason, "cache retired");
  EXPECT_TRUE(after->status.ok());
}

TEST(Scheduler, ASequenceWhoseEventsNobodyTakesIsPausedAndOthersGoOn) {
  FakePair table({.scheduler = {.pause_s = 5}});
  const Events slow = table.submit(fake_text(1, 20), 50);
  const Events quick = table.submit(fake_text(2, 20), 200);
  while (slow->ids.size() < 10) table.turn();
  slow->taken = false;
  const std::size_t before = slow->ids.size();
  for (int i = 0; i < 50; ++i) table.turn();
  EXPECT_EQ(slow->ids.size(), before);
  EXPECT_GT(quick->ids.size(), 40u);
  slow->taken = true;
  for (int i = 0; i < 10; ++i) table.turn();
  EXPECT_GT(slow->ids.size(), before);
  slow->taken = false;
  table.turn();
  EXPECT_LT(table.scheduler->next_deadline(), table.clock.now_s() + 6);
  while (!quick->ends) table.turn();
  EXPECT_FALSE(table.scheduler->streaming());
  EXPECT_EQ(table.scheduler->next(), Work::none);
  table.clock.advance(6);
  table.run_all();
  EXPECT_EQ(slow->status.code(), Code::busy);
  EXPECT_EQ(table.held_pages(), 0u);
}

TEST(Scheduler, SequencesWhoseEventsNobodyTakesGiveTheirPlacesToOthers) {
  FakePair table({.limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 2},
                  .scheduler = {.pause_s = 30}});
  std::vector<Events> slow;
  for (std::uint32_t i = 0; i < 4; ++i) slow.push_back(table.submit(fake_text(i, 20), 40));
  for (const Events& events : slow) events->taken = false;
  for (int i = 0; i < 20; ++i) table.turn();
  const Events read = table.submit(fake_text(9, 20), 40);
  for (int i = 0; i < 20; ++i) table.turn();
  EXPECT_EQ(read->ends, 0) << "both places are taken, not long yet";
  // Each that waits before it gets its turn, and stops when nobody reads.
  for (int round = 0; round < 3 && read->ends == 0; ++round) {
    EXPECT_LE(table.scheduler->next_deadline(), table.clock.now_s() + 1.01);
    table.clock.advance(1.1);
    for (int i = 0; i < 60; ++i) table.turn();
  }
  EXPECT_EQ(read->ends, 1);
  EXPECT_TRUE(read->status.ok());
  EXPECT_EQ(table.scheduler->next(), Work::none) << "the others wait to be read";
  for (const Events& events : slow) events->taken = true;
  table.run_all();
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(slow[i]->status.ok());
    EXPECT_EQ(slow[i]->result.ids, table.settings.model.answer(fake_text(i, 20), 40));
  }
  EXPECT_EQ(table.held_pages(), 0u);
}

TEST(Scheduler, AtMostOneChunkRunsBetweenTwoSteps) {
  FakePair table;
  const Events stream = table.submit(fake_text(1, 20), 400);
  while (stream->ids.empty()) table.turn();
  for (std::uint32_t i = 0; i < 3; ++i) table.submit(fake_text(10 + i, 1500), 5);
  Work last = Work::none;
  while (table.scheduler->streaming() && !table.scheduler->idle()) {
    const double before = table.clock.now_s();
    const Work work = table.turn();
    ASSERT_FALSE(work == Work::chunk && last == Work::chunk);
    EXPECT_TRUE(work != Work::chunk || table.clock.now_s() - before < 0.22);
    last = work;
  }
}

TEST(Scheduler, TheEndOfTheEngineEndsEverything) {
  FakePair table(
      {.limits = {.context = 512, .prefill_chunk = 64, .choices = 1000, .sequences = 2}});
  std::vector<Events> all;
  for (std::uint32_t i = 0; i < 4; ++i) all.push_back(table.submit(fake_text(i, 100), 50));
  for (int i = 0; i < 5; ++i) table.turn();
  table.scheduler->end_all(Status(Code::closed, "unloading"));
  for (const Events& events : all) {
    EXPECT_EQ(events->ends, 1);
    EXPECT_EQ(events->status.code(), Code::closed);
  }
  EXPECT_TRUE(table.scheduler->idle());
  EXPECT_EQ(table.held_pages(), 0u);
}

}  // namespace
}  // namespace drafthouse
