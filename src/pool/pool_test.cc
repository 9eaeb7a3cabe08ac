#include "pool/pool.h"

#include <gtest/gtest.h>

#include <set>

#include "base/memory.h"
#include "tests/sim/fake_clock.h"

namespace drafthouse {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

// Engines that hold a number of requests and a share of the budget.
struct FakeEngine final : public ModelEngine {
  FakeEngine(std::string of, MemoryBudget* budget) : name(std::move(of)), ledger(budget) {}
  ~FakeEngine() override {
    if (reserved > 0) ledger.remove(MemoryTag::weights, reserved);
  }
  std::size_t active() const override { return running; }
  void stop(const Status& status) override {
    stopped = true;
    stop_status = status;
    running = 0;
  }
  std::size_t exclusive_bytes() const override { return reserved; }
  Status release(bool keep, double) override {
    kept_cache = keep;
    return release_status;
  }

  std::string name;
  MemoryLedger ledger;
  std::size_t reserved = 0;
  std::atomic<std::size_t> running{0};
  std::atomic<bool> stopped{false};
  bool kept_cache = false;
  Status stop_status;
  Status release_status;
};

struct FakeLoader final : public EngineLoader {
  explicit FakeLoader(MemoryBudget& of) : budget(of) {}
  Result<MemoryNeed> estimate(const ModelSpec& spec) override {
    ++estimates;
    if (!needs.contains(spec.name)) return Status(Code::not_found, spec.name + ": no such file");
    return needs[spec.name];
  }
  Result<std::shared_ptr<ModelEngine>> load(const ModelSpec& spec,
                                            const std::atomic<bool>* cancel) override {
    ++loads;
    if (during) during(spec);
    if (cancel->load()) return Status(Code::cancelled, "nobody wants it");
    if (broken.contains(spec.name)) return Status(Code::corrupt, spec.name + " is damaged");
    auto engine = std::make_shared<FakeEngine>(spec.name, &budget);
    const std::size_t bytes = needs[spec.name].total();
    if (Status s = engine->ledger.reserve(MemoryTag::weights, bytes); !s.ok()) return s;
    engine->reserved = bytes;
    last[spec.name] = engine;
    return std::shared_ptr<ModelEngine>(engine);
  }

  MemoryBudget& budget;
  std::map<std::string, MemoryNeed> needs = {};
  std::set<std::string> broken = {};
  std::function<void(const ModelSpec&)> during = {};
  std::map<std::string, std::weak_ptr<FakeEngine>> last = {};
  std::atomic<int> estimates{0};
  std::atomic<int> loads{0};
};

struct FakeRequest final : public PoolRequest {
  Status start(ModelEngine& engine) override {
    if (before_start) before_start();
    auto& fake = dynamic_cast<FakeEngine&>(engine);
    if (fake.stopped) return Status(Code::closed, "the engine was stopped");
    ++fake.running;
    ++starts;
    on = &fake;
    return {};
  }
  void fail(const Status& status) override {
    ++fails;
    why = status;
  }
  double deadline_s() const override { return deadline; }

  std::function<void()> before_start = {};
  double deadline = 0;
  int starts = 0;
  std::atomic<int> fails{0};
  Status why;
  FakeEngine* on = nullptr;
};

struct Table {
  explicit Table(std::size_t limit = 0, PoolOptions options = {}) : budget(limit), loader(budget) {
    options.log = [this](LogLevel, std::string_view line) { lines.emplace_back(line); };
    pool = std::make_unique<Pool>(loader, budget, clock, options);
  }
  ~Table() {
    pool.reset();
    EXPECT_EQ(budget.used(), 0u);
  }
  void add(const std::string& name, double gib, bool pinned = false) {
    const auto bytes = static_cast<std::size_t>(gib * static_cast<double>(kGiB));
    loader.needs[name] = {.weights = bytes, .pages = 0, .scratch = 0};
    ASSERT_TRUE(pool->add({.name = name, .target = name + ".gguf", .pinned = pinned}).ok());
  }
  std::shared_ptr<FakeRequest> submit(const std::string& name, double deadline = 0) {
    auto request = std::make_shared<FakeRequest>();
    request->deadline = deadline;
    const Status status = pool->submit(name, request);
    EXPECT_TRUE(status.ok()) << status.message();
    return request;
  }
  void end(FakeRequest& request) {
    --request.on->running;
    request.on = nullptr;
    pool->request_ended();
  }
  void work() {
    for (int i = 0; i < 100; ++i) {
      if (!pool->work_once()) return;
    }
    ADD_FAILURE() << "the pool never rests";
  }
  ModelState state(const std::string& name) { return pool->entry(name).value().state; }
  bool ready(const std::string& name) { return state(name) == ModelState::ready; }

  FakeClock clock;
  MemoryBudget budget;
  FakeLoader loader;
  std::vector<std::string> lines;
  std::unique_ptr<Pool> pool;
};

PoolOptions stepped(PoolOptions options = {}) {
  options.own_thread = false;
  return options;
}

TEST(Pool, LoadsOnceForAllThatWaitAndGivesThemOver) {
  Table table(0, stepped());
  table.add("a", 1);
  std::vector<std::shared_ptr<FakeRequest>> all;
  for (int i = 0; i < 5; ++i) all.push_back(table.submit("a"));
  EXPECT_EQ(table.pool->entry("a").value().waiting, 5u);
  table.work();
  EXPECT_EQ(table.loader.loads, 1);
  for (const auto& request : all) EXPECT_EQ(request->starts, 1);
  EXPECT_EQ(table.submit("a")->starts, 1) << "started at once when it is loaded";
  const Pool::Entry entry = table.pool->entry("a").value();
  EXPECT_EQ(entry.requests, 6u);
  EXPECT_EQ(entry.loads, 1u);
  EXPECT_EQ(entry.waiting, 0u);
}

TEST(Pool, ConcurrentLoadsAreOneFlight) {
  Table table(0, {});
  table.add("a", 1);
  table.add("b", 1);
  table.loader.broken.insert("b");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(table.pool->load("a").ok());
      EXPECT_EQ(table.pool->load("b").code(), Code::corrupt);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.pool->entry("a").value().loads, 1u);
  EXPECT_TRUE(table.ready("a"));
}

TEST(Pool, UnknownNamesAndConflictsAreNamed) {
  Table table(0, stepped());
  table.add("a", 1);
  EXPECT_TRUE(table.pool->add({.name = "a", .target = "a.gguf"}).ok()) << "the same once more";
  const Status other = table.pool->add({.name = "a", .target = "other.gguf"});
  EXPECT_EQ(other.code(), Code::conflict);
  EXPECT_EQ(table.pool->add({.name = "", .target = "x"}).code(), Code::invalid_argument);
  const Status unknown = table.pool->submit("b", std::make_shared<FakeRequest>());
  EXPECT_EQ(unknown.code(), Code::not_found);
  EXPECT_EQ(unknown.message(), "there is no model \"b\"; known: a");
  EXPECT_EQ(table.pool->unload("b", {}).code(), Code::not_found);
  EXPECT_TRUE(table.pool->unload("a", {}).ok()) << "not loaded: nothing to do";
}

TEST(Pool, AFailedLoadCoolsDown) {
  Table table(0, stepped({.load_cooldown_s = 5}));
  table.add("a", 1);
  table.loader.broken.insert("a");
  const auto first = table.submit("a");
  table.work();
  EXPECT_EQ(first->fails, 1);
  EXPECT_EQ(first->why.code(), Code::corrupt);
  EXPECT_EQ(table.state("a"), ModelState::failed);
  auto early = std::make_shared<FakeRequest>();
  EXPECT_EQ(table.pool->submit("a", early).code(), Code::corrupt) << "the same reason, at once";
  table.work();
  EXPECT_EQ(table.loader.loads, 1);
  EXPECT_EQ(early->fails, 0);
  table.clock.advance(5);
  table.loader.broken.clear();
  const auto later = table.submit("a");
  table.work();
  EXPECT_EQ(later->starts, 1);
  EXPECT_EQ(table.pool->entry("a").value().why, "");
}

TEST(Pool, TheRefusalIsArithmetic) {
  const auto gib = [](double of) { return static_cast<std::size_t>(of * double(kGiB)); };
  Table table(8 * kGiB, stepped());
  table.add("a", 3, true);
  table.add("b", 3.8, true);
  table.add("c", 0);
  table.loader.needs["c"] = {.weights = gib(1.6), .pages = gib(0.4), .scratch = gib(0.1)};
  table.submit("a");
  table.submit("b");
  table.work();
  const auto request = table.submit("c");
  table.work();
  EXPECT_EQ(request->why.code(), Code::no_memory);
  EXPECT_EQ(
      request->why.message(),
      "\"c\" needs 2.1 GiB: weights 1.6, pages 0.4, scratch 0.1; free 1.2 of 8; pinned: a, b");
}

TEST(Pool, RoomIsMadeFromTheIdleModelUsedLeastRecently) {
  Table table(8 * kGiB, stepped());
  for (const char* name : {"a", "b", "c", "d"}) table.add(name, 2.5);
  for (const char* name : {"a", "b", "c"}) {
    const auto request = table.submit(name);
    table.work();
    table.clock.advance(1);
    table.end(*request);
  }
  table.clock.advance(1);
  table.end(*table.submit("a"));
  table.submit("d");
  table.work();
  EXPECT_TRUE(table.ready("a"));
  EXPECT_FALSE(table.ready("b"));
  EXPECT_TRUE(table.ready("c"));
  EXPECT_TRUE(table.ready("d"));
  ASSERT_EQ(table.lines.size(), 1u);
  EXPECT_LE(table.budget.peak(), 8 * kGiB);
}

TEST(Pool, PinnedModelsStayAndCachedStateGivesWay) {
  std::size_t cached = 0;
  MemoryLedger* cache = nullptr;
  Table table(8 * kGiB, stepped({.relieve =
                                     [&](const std::string& model) {
                                       EXPECT_EQ(model, "b");
                                       if (cached == 0) return false;
                                       cache->remove(MemoryTag::kv_pages, kGiB);
                                       cached -= kGiB;
                                       return true;
                                     },
                                 .relievable = [&] { return cached; }}));
  MemoryLedger ledger(&table.budget);
  cache = &ledger;
  cached = 3 * kGiB;
  ASSERT_TRUE(ledger.reserve(MemoryTag::kv_pages, cached).ok());
  table.add("a", 3, true);
  table.add("b", 4);
  table.end(*[&] {
    auto request = table.submit("a");
    table.work();
    return request;
  }());
  table.submit("b");
  table.work();
  EXPECT_TRUE(table.ready("a")) << "idle, but pinned";
  EXPECT_TRUE(table.ready("b"));
  EXPECT_EQ(cached, kGiB);
  ledger.remove(MemoryTag::kv_pages, cached);
}

TEST(Pool, CachedStateGoesBeforeIdleModelsAndNothingGoesInVain) {
  std::size_t cached = 3 * kGiB;
  MemoryLedger* cache = nullptr;
  Table table(8 * kGiB, stepped({.relieve =
                                     [&](const std::string&) {
                                       if (cached == 0) return false;
                                       cache->remove(MemoryTag::kv_pages, kGiB);
                                       cached -= kGiB;
                                       return true;
                                     },
                                 .relievable = [&] { return cached; }}));
  MemoryLedger ledger(&table.budget);
  cache = &ledger;
  ASSERT_TRUE(ledger.reserve(MemoryTag::kv_pages, cached).ok());
  table.add("idle", 3);
  table.add("large", 9);
  table.add("fits", 4);
  table.add("more", 5);
  table.end(*[&] {
    auto request = table.submit("idle");
    table.work();
    return request;
  }());
  const auto refused = table.submit("large");
  table.work();
  EXPECT_EQ(refused->why.code(), Code::no_memory);
  EXPECT_EQ(cached, 3 * kGiB) << "all of it would not have been enough";
  EXPECT_TRUE(table.ready("idle"));
  table.clock.advance(1);
  table.end(*[&] {
    auto request = table.submit("fits");
    table.work();
    return request;
  }());
  EXPECT_EQ(cached, kGiB);
  EXPECT_TRUE(table.ready("idle"));
  table.submit("more");
  table.work();
  EXPECT_EQ(cached, 0u);
  EXPECT_FALSE(table.ready("idle"));
  EXPECT_FALSE(table.ready("fits")) << "the idle one alone would not have been enough";
  EXPECT_TRUE(table.ready("more"));
}

TEST(Pool, AnIdleModelIsUnloadedAfterItsTimeAndItsCacheKept) {
  Table table(0, stepped({.idle_unload_s = 60}));
  table.add("a", 1);
  table.add("b", 1, true);
  const auto request = table.submit("a");
  table.end(*[&] {
    auto other = table.submit("b");
    table.work();
    return other;
  }());
  const std::shared_ptr<FakeEngine> engine = table.loader.last["a"].lock();
  table.clock.advance(600);
  table.work();
  EXPECT_TRUE(table.ready("a")) << "it runs";
  table.end(*request);
  table.clock.advance(59);
  table.work();
  EXPECT_TRUE(table.ready("a")) << "counted from the end of the last request";
  table.clock.advance(2);
  table.work();
  EXPECT_EQ(table.state("a"), ModelState::registered);
  EXPECT_TRUE(engine->kept_cache);
  EXPECT_TRUE(table.ready("b")) << "pinned";
}

TEST(Pool, UnderABudgetForOneOfTwoTheyTakeTurnsInGroups) {
  Table table(4 * kGiB, stepped({.switch_after_s = 2}));
  table.add("a", 3);
  table.add("b", 3);
  const auto a1 = table.submit("a");
  table.work();
  const auto b1 = table.submit("b");
  const auto b2 = table.submit("b");
  table.work();
  EXPECT_EQ(table.state("b"), ModelState::waiting);
  const auto a2 = table.submit("a");
  EXPECT_EQ(a2->starts, 1) << "within the time others still begin";
  table.clock.advance(3);
  table.work();
  const auto a3 = table.submit("a");
  EXPECT_EQ(a3->starts, 0) << "b has waited long enough: a runs dry";
  table.end(*a1);
  table.work();
  EXPECT_EQ(b1->starts, 0);
  table.end(*a2);
  table.work();
  EXPECT_EQ(b1->starts, 1);
  EXPECT_EQ(b2->starts, 1);
  EXPECT_EQ(a3->fails, 0);
  EXPECT_EQ(table.state("a"), ModelState::waiting);
  table.end(*b1);
  table.end(*b2);
  table.work();
  EXPECT_EQ(a3->starts, 1);
  EXPECT_EQ(table.pool->entry("a").value().loads, 2u);
}

TEST(Pool, ADryModelServesAgainWhenNobodyNeedsItsRoom) {
  Table table(4 * kGiB, stepped({.switch_after_s = 2}));
  table.add("a", 3);
  table.add("b", 3);
  const auto a1 = table.submit("a");
  table.work();
  const auto b1 = table.submit("b");
  table.clock.advance(3);
  table.work();
  const auto a2 = table.submit("a");
  EXPECT_EQ(a2->starts, 0);
  EXPECT_TRUE(table.pool->withdraw("b", b1.get(), Status(Code::cancelled, "gone")));
  EXPECT_EQ(b1->fails, 1);
  EXPECT_FALSE(table.pool->withdraw("b", b1.get(), Status(Code::cancelled, "gone")));
  table.work();
  EXPECT_EQ(a2->starts, 1);
  EXPECT_EQ(table.state("b"), ModelState::registered);
  EXPECT_EQ(table.submit("a")->starts, 1);
}

TEST(Pool, DeadlinesEndRequestsThatWait) {
  Table table(4 * kGiB, stepped());
  table.add("a", 3);
  table.add("b", 3);
  table.submit("a");
  table.work();
  const auto late = table.submit("b", table.clock.now_s() + 1);
  table.work();
  table.clock.advance(1);
  table.work();
  EXPECT_EQ(late->fails, 1);
  EXPECT_EQ(late->why.code(), Code::cancelled);
  EXPECT_EQ(table.pool->entry("b").value().waiting, 0u);
}

TEST(Pool, ALoadThatNobodyWantsAnyMoreIsGivenUp) {
  Table table(0, stepped());
  table.add("a", 1);
  auto request = table.submit("a");
  std::shared_ptr<FakeRequest> late;
  table.loader.during = [&](const ModelSpec&) {
    if (late != nullptr) return;
    EXPECT_TRUE(table.pool->withdraw("a", request.get(), Status(Code::cancelled, "left")));
    late = table.submit("a");
  };
  table.work();
  EXPECT_EQ(request->fails, 1);
  EXPECT_EQ(late->starts, 1) << "who comes afterwards is no victim: it is loaded again";
  EXPECT_EQ(table.loader.loads, 2);
}

TEST(Pool, UnloadEndsWhatRunsAtTheDeadline) {
  Table table(0, stepped());
  table.add("a", 1);
  table.submit("a");
  table.work();
  const std::shared_ptr<FakeEngine> engine = table.loader.last["a"].lock();
  EXPECT_TRUE(table.pool->unload("a", {.deadline_s = 0, .keep_cache = true}).ok());
  EXPECT_EQ(engine->stop_status.code(), Code::closed);
  EXPECT_TRUE(engine->kept_cache);
  EXPECT_EQ(table.state("a"), ModelState::registered);
  const auto next = table.submit("a");
  table.work();
  EXPECT_EQ(next->starts, 1);
}

TEST(Pool, AStartThatMeetsAnUnloadWaitsForTheNextLoad) {
  Table table(0, stepped());
  table.add("a", 1);
  table.submit("a");
  table.work();
  auto request = std::make_shared<FakeRequest>();
  bool met = false;
  request->before_start = [&] {
    if (met) return;
    met = true;
    EXPECT_FALSE(table.pool->unload_idle()) << "a request is just being given to it";
    EXPECT_TRUE(table.pool->unload("a", {.deadline_s = 0, .keep_cache = false}).ok());
  };
  ASSERT_TRUE(table.pool->submit("a", request).ok());
  EXPECT_EQ(request->starts, 0);
  table.work();
  EXPECT_EQ(request->starts, 1);
  EXPECT_EQ(request->fails, 0);
}

TEST(Pool, RemoveForgetsAndEndsThoseThatWait) {
  Table table(4 * kGiB, stepped());
  table.add("a", 3);
  table.add("b", 3);
  table.submit("a");
  table.work();
  const auto waits = table.submit("b");
  EXPECT_TRUE(table.pool->remove("b", {.deadline_s = 0}).ok());
  EXPECT_EQ(waits->why.code(), Code::closed);
  EXPECT_TRUE(table.pool->remove("a", {.deadline_s = 0}).ok());
  EXPECT_EQ(table.pool->entries().size(), 0u);
  EXPECT_EQ(table.pool->remove("a", {}).code(), Code::not_found);
  EXPECT_TRUE(table.pool->add({.name = "a", .target = "other.gguf"}).ok()) << "the name is free";
}

TEST(Pool, AReleaseThatFailsIsReportedAndTheModelStays) {
  Table table(0, stepped());
  table.add("a", 1);
  table.submit("a");
  table.work();
  table.loader.last["a"].lock()->release_status = Status(Code::internal, "disk is gone");
  EXPECT_EQ(table.pool->remove("a", {.deadline_s = 0}).message(), "disk is gone");
  EXPECT_EQ(table.state("a"), ModelState::registered);
  EXPECT_TRUE(table.pool->remove("a", {.deadline_s = 0}).ok());
}

TEST(Pool, AClosedPoolTakesNothingNew) {
  Table table(0, stepped());
  table.add("a", 1);
  const auto before = table.submit("a");
  table.pool->close();
  EXPECT_EQ(table.pool->submit("a", std::make_shared<FakeRequest>()).code(), Code::closed);
  EXPECT_EQ(table.pool->load("a").code(), Code::closed);
  EXPECT_EQ(table.pool->add({.name = "b", .target = "b"}).code(), Code::closed);
  EXPECT_FALSE(table.pool->wait_until_idle(0));
  table.work();
  EXPECT_EQ(before->starts, 1) << "what was taken is served";
  EXPECT_FALSE(table.pool->wait_until_idle(0));
  table.end(*before);
  EXPECT_TRUE(table.pool->wait_until_idle(0));
}

TEST(Pool, TheEndOfThePoolEndsThoseThatWait) {
  auto table = std::make_unique<Table>(0, stepped());
  table->add("a", 1);
  const auto waits = table->submit("a");
  table.reset();
  EXPECT_EQ(waits->fails, 1);
  EXPECT_EQ(waits->why.code(), Code::closed);
}

// Loads, unloads, removals and requests from several threads at once: everything returns, every
// request is started or failed.
TEST(Pool, ThreadsThatDisagreeAllReturn) {
  Table table(4 * kGiB, {.load_cooldown_s = 0, .switch_after_s = 0});
  table.add("a", 3);
  table.add("b", 3);
  std::vector<std::thread> threads;
  std::mutex lock;
  std::vector<std::shared_ptr<FakeRequest>> all;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const std::string name = (i + t) % 2 == 0 ? "a" : "b";
        if (t == 0) {
          (void)table.pool->unload(name, {.deadline_s = 0, .keep_cache = false});
        } else if (i % 8 == 7) {
          (void)table.pool->remove(name, {.deadline_s = 0});
          (void)table.pool->add({.name = name, .target = name + ".gguf"});
        } else {
          auto request = std::make_shared<FakeRequest>();
          if (!table.pool->submit(name, request).ok()) continue;
          const std::lock_guard<std::mutex> guard(lock);
          all.push_back(request);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(table.pool->unload(name, {.deadline_s = 0}).ok());
    EXPECT_TRUE(table.pool->remove(name, {.deadline_s = 0}).ok());
  }
  // The pool's thread may be about to tell some of them.
  table.pool->shut_down();
  for (const auto& request : all) EXPECT_EQ(request->starts + request->fails, 1);
}

}  // namespace
}  // namespace drafthouse
