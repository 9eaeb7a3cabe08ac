#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include "tests/sim/fake_pair.h"

namespace drafthouse {
namespace {

// Events that a thread can wait for.
class WaitedEvents final : public TaskEvents {
 public:
  void started(const CacheReport&) override {}
  void tokens(const AnswerPiece&, std::span<const std::uint32_t> more, std::uint32_t) override {
    const std::lock_guard<std::mutex> lock(lock_);
    ids_.insert(ids_.end(), more.begin(), more.end());
    changed_.notify_all();
  }
  bool ready() override { return true; }
  void ended(const Status& status, GenerateResult result) override {
    const std::lock_guard<std::mutex> lock(lock_);
    ++ends_;
    status_ = status;
    result_ = std::move(result);
    changed_.notify_all();
  }

  Status wait() {
    std::unique_lock<std::mutex> lock(lock_);
    changed_.wait(lock, [this] { return ends_ > 0; });
    EXPECT_EQ(ends_, 1);
    return status_;
  }
  void wait_for_ids(std::size_t count) {
    std::unique_lock<std::mutex> lock(lock_);
    changed_.wait(lock, [&] { return ids_.size() >= count || ends_ > 0; });
  }
  std::vector<std::uint32_t> ids() {
    const std::lock_guard<std::mutex> lock(lock_);
    return result_.ids;
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> ids_;
  int ends_ = 0;
  Status status_;
  GenerateResult result_;
};

struct Pair {
  explicit Pair(StepGate& gate, std::uint32_t queue = 64, double weight = 1)
      : costs({{1, 0.011}, {8, 0.018}}, {{2, 0.002}, {8, 0.003}}) {
    model.block = 8;
    StateSpec spec;
    spec.layout = fake_layout(std::size_t{512} << 10, true);
    spec.budget = &budget;
    cache = CacheManager::create({.target = "t"}, {}, spec, nullptr, nullptr).value();
    runner = std::make_unique<FakeRunner>(
        model, TurnLimits{.context = 4096, .prefill_chunk = 128, .choices = 1000, .sequences = 4},
        cache->pages(), clock);
    // Hooks are set before the thread begins.
    start = [this, &gate, queue, weight] {
      thread = std::make_unique<EngineThread>(SchedulerParts{.runner = runner.get(),
                                                             .costs = &costs,
                                                             .vocab_size = 1000,
                                                             .clock = &clock,
                                                             .pages = cache->pages().get()},
                                              SchedulerLimits{.queue = queue}, gate, weight);
    };
  }
  ~Pair() {
    thread.reset();
    runner.reset();
    cache.reset();
    EXPECT_EQ(budget.used(), 0u);
  }
  std::shared_ptr<Task> task(std::vector<std::uint32_t> prompt, std::uint32_t max_tokens,
                             std::shared_ptr<WaitedEvents> events) {
    auto made = std::make_shared<Task>();
    made->request.prompt_ids = std::move(prompt);
    made->request.max_tokens = max_tokens;
    made->cache = cache;
    made->events = std::move(events);
    return made;
  }

  MemoryBudget budget;
  FakeClock clock;
  FakeModel model;
  CostTable costs;
  std::shared_ptr<CacheManager> cache;
  std::unique_ptr<FakeRunner> runner;
  std::function<void()> start;
  std::unique_ptr<EngineThread> thread;
};

TEST(EngineThread, ServesManyThreadsWithTheIdsOfTheModelAlone) {
  StepGate gate;
  Pair a(gate);
  Pair b(gate, 64, 3);
  a.start();
  b.start();
  std::vector<std::thread> clients;
  for (std::uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (std::uint32_t i = 0; i < 6; ++i) {
        Pair& pair = i % 2 == 0 ? a : b;
        const auto prompt = fake_text(client * 10 + i / 2, 20 + 90 * i);
        auto events = std::make_shared<WaitedEvents>();
        ASSERT_TRUE(pair.thread->submit(pair.task(prompt, 30, events)).ok());
        EXPECT_TRUE(events->wait().ok());
        EXPECT_EQ(events->ids(), pair.model.answer(prompt, 30));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(a.thread->tasks(), 0u);
  a.thread->stop(Status(Code::closed, "the end"));
  EXPECT_EQ(a.thread->counters().finished, 12u);
  EXPECT_EQ(a.thread->submit(a.task(fake_text(1, 5), 1, std::make_shared<WaitedEvents>())).code(),
            Code::closed);
}

TEST(EngineThread, CancellingEndsOneTaskAndNoOther) {
  StepGate gate;
  Pair pair(gate);
  pair.start();
  auto long_events = std::make_shared<WaitedEvents>();
  auto other_events = std::make_shared<WaitedEvents>();
  auto long_task = pair.task(fake_text(1, 50), 0, long_events);
  ASSERT_TRUE(pair.thread->submit(long_task).ok());
  long_events->wait_for_ids(5);
  ASSERT_TRUE(pair.thread->submit(pair.task(fake_text(2, 300), 60, other_events)).ok());
  other_events->wait_for_ids(1);
  pair.thread->cancel(*long_task);
  EXPECT_EQ(long_events->wait().code(), Code::cancelled);
  pair.thread->cancel(*long_task);
  EXPECT_TRUE(other_events->wait().ok());
  EXPECT_EQ(other_events->ids(), pair.model.answer(fake_text(2, 300), 60));
}

TEST(EngineThread, StopEndsAllTasksOnce) {
  StepGate gate;
  Pair pair(gate);
  pair.start();
  std::vector<std::shared_ptr<WaitedEvents>> all;
  for (std::uint32_t i = 0; i < 12; ++i) {
    all.push_back(std::make_shared<WaitedEvents>());
    ASSERT_TRUE(pair.thread->submit(pair.task(fake_text(i, 100), 0, all.back())).ok());
  }
  all[0]->wait_for_ids(3);
  std::thread second([&] { pair.thread->stop(Status(Code::closed, "unloading")); });
  pair.thread->stop(Status(Code::closed, "unloading"));
  second.join();
  for (const auto& events : all) EXPECT_EQ(events->wait().code(), Code::closed);
  EXPECT_EQ(pair.thread->tasks(), 0u);
}

TEST(EngineThread, MoreThanTheQueueIsBusyAndHearsNothing) {
  StepGate gate;
  // Somebody else is inside, so nothing can begin.
  const StepGate::Member outside = gate.join(1);
  ASSERT_EQ(gate.enter(outside, StepGate::Kind::step), StepGate::Entry::granted);
  Pair pair(gate, 3);
  pair.start();
  std::vector<std::shared_ptr<WaitedEvents>> taken;
  std::size_t refused = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    auto events = std::make_shared<WaitedEvents>();
    const Status status = pair.thread->submit(pair.task(fake_text(i, 20), 2, events));
    if (status.ok()) {
      taken.push_back(events);
    } else {
      EXPECT_EQ(status.code(), Code::busy);
      ++refused;
    }
  }
  EXPECT_GE(refused, 20u - 3 - 4) << "at most the queue and what one step takes";
  gate.exit(outside, 0.1);
  gate.rest(outside);
  for (const auto& events : taken) EXPECT_TRUE(events->wait().ok()) << "what was taken is served";
  gate.leave(outside);
}

// Making room inside a step of one engine may stop another one that waits for its turn.
TEST(EngineThread, AnEngineThatWaitsForItsTurnCanBeStoppedFromInside) {
  StepGate gate;
  Pair a(gate);
  Pair b(gate);
  b.start();
  auto b_events = std::make_shared<WaitedEvents>();
  bool stopped = false;
  a.runner->on_layer = [&] {
    if (stopped) return;
    stopped = true;
    // a is inside: b can do no more than wait.
    ASSERT_TRUE(b.thread->submit(b.task(fake_text(2, 20), 5, b_events)).ok());
    b.thread->stop(Status(Code::closed, "to make room"));
  };
  a.start();
  auto a_events = std::make_shared<WaitedEvents>();
  ASSERT_TRUE(a.thread->submit(a.task(fake_text(1, 20), 5, a_events)).ok());
  EXPECT_TRUE(a_events->wait().ok());
  EXPECT_EQ(b_events->wait().code(), Code::closed);
}

TEST(StepGate, LetsOneInAtATimeAndReturnsThoseThatAreClosed) {
  StepGate gate;
  std::atomic<int> inside{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&gate, &inside, i] {
      const StepGate::Member member = gate.join(i + 1);
      gate.set_streaming(member, i == 0);
      for (int turn = 0; turn < 200; ++turn) {
        auto kind = i == 0 ? StepGate::Kind::step : StepGate::Kind::chunk;
        ASSERT_EQ(gate.enter(member, kind), StepGate::Entry::granted);
        EXPECT_EQ(inside.fetch_add(1), 0);
        inside.fetch_sub(1);
        gate.exit(member, 0.001);
      }
      gate.set_streaming(member, false);
      gate.rest(member);
      gate.leave(member);
    });
  }
  for (std::thread& thread : threads) thread.join();

  const StepGate::Member holder = gate.join(1);
  const StepGate::Member waiter = gate.join(1);
  ASSERT_EQ(gate.enter(holder, StepGate::Kind::step), StepGate::Entry::granted);
  std::thread thread(
      [&] { EXPECT_EQ(gate.enter(waiter, StepGate::Kind::step), StepGate::Entry::closed); });
  gate.close(waiter);
  thread.join();
  gate.exit(holder, 0);
}

}  // namespace
}  // namespace drafthouse
