#pragma once

#include <optional>

#include "tests/sim/world.h"

// The models of a World, what loads and serves them, and their requests.
namespace drafthouse {

inline constexpr std::uint32_t kWorldVocab = 200;

struct World::Model {
  ModelSpec spec;
  CacheIdentity identity;
  CacheConfig config;
  FakeModel fake;
  StateSpec state;
  Engine* engine = nullptr;
  // What the registry must show.
  const CacheManager* manager = nullptr;
  std::uint64_t rebuilds = 0;  // counted on after an unload
  std::optional<CacheConfig> resolved_config;
  StateDigest resolved_digest;
  std::vector<std::vector<std::uint32_t>> texts;  // to go on from
};

// A loaded model and what its engine thread would know.
class World::Engine final : public ModelEngine {
 public:
  Engine(World& of, Model& which, CacheLease held)
      : world(of),
        model(which),
        weights(&of.budget_),
        lease(std::move(held)),
        fake(which.fake),
        costs({{1, 0.011}, {8, 0.018}}, {{2, 0.002}, {8, 0.003}}),
        pages(lease.manager() != nullptr
                  ? lease.manager()->pages()
                  : std::make_shared<PageStore>(which.state.layout, &of.budget_)),
        runner(fake,
               {.context = 700,
                .prefill_chunk = 96,
                .choices = kWorldVocab,
                .sequences = 1 + of.random_.below(4)},
               pages, of.clock_),
        scheduler(
            {.runner = &runner,
             .costs = fake.block > 1 ? &costs : nullptr,
             .eos_ids = {fake.eos},
             .vocab_size = kWorldVocab,
             .clock = &of.clock_,
             .pages = pages.get(),
             .background =
                 [&of](std::function<void()> job) { of.background_.push_back(std::move(job)); }},
            {.queue = 8, .chunk_s = 0.05, .pause_s = 3}),
        member(of.order_.join(which.spec.weight)),
        hooks(of.hooks_.bind()) {
    runner.on_layer = [&of] { of.layer(); };
    of.stores_.push_back(pages);
    of.engines_.push_back(this);
    model.engine = this;
  }
  ~Engine() override {
    if (inside) world.complain("an engine went in the middle of its pass");
    world.counts_.preempted += scheduler.counters().preempted;
    world.order_.leave(member);
    std::erase(world.engines_, this);
    model.engine = nullptr;
    weights.remove(MemoryTag::weights, weights.total());
  }
  std::size_t active() const override {
    return inbox.size() + scheduler.queued() + scheduler.running();
  }
  // Its thread takes what others have left for it.
  void take_inbox() {
    std::vector<std::shared_ptr<Task>> left;
    left.swap(inbox);
    for (const std::shared_ptr<Task>& task : left) {
      const std::shared_ptr<TaskEvents> events = task->events;
      if (Status s = scheduler.submit(task); !s.ok()) events->ended(s, {});
    }
  }
  void stop(const Status& status) override {
    if (inside) world.complain("an engine was stopped in the middle of its pass");
    closed = true;
    take_inbox();
    scheduler.end_all(status);
    asking = false;
    world.order_.set_streaming(member, false);
    world.order_.rest(member);
  }
  std::size_t exclusive_bytes() const override { return weights.total(); }
  Status release(bool keep_cache, double) override {
    Status status;
    if (!keep_cache) {
      status = world.registry_.shutdown(model.identity);
      model.manager = nullptr;
      if (!status.ok()) world.complain("a shutdown failed: " + status.message());
    }
    lease.release();
    return status;
  }

  World& world;
  Model& model;
  MemoryLedger weights;
  CacheLease lease;
  const FakeModel fake;
  CostTable costs;
  std::shared_ptr<PageStore> pages;
  FakeRunner runner;
  Scheduler scheduler;
  StepOrder::Member member;
  HookBinding hooks;
  std::vector<std::shared_ptr<Task>> inbox;
  Scheduler::Work work = Scheduler::Work::none;
  bool asking = false;
  bool inside = false;
  bool closed = false;
  int foreign_chunks = 0;  // since the last step, while somebody streams
};

class World::Loader final : public EngineLoader {
 public:
  explicit Loader(World& world) : world_(world) {}
  Result<MemoryNeed> estimate(const ModelSpec& spec) override {
    if (world_.random_.percent(2)) return Status(Code::not_found, spec.target + " is not there");
    return MemoryNeed{
        .weights = 3 * world_.slab_bytes_, .pages = 2 * world_.slab_bytes_, .scratch = 0};
  }
  Result<std::shared_ptr<ModelEngine>> load(const ModelSpec& spec,
                                            const std::atomic<bool>* cancel) override {
    Model& model = model_of(spec.name);
    world_.inside_ = true;
    for (int i = 0; i < 4; ++i) {
      world_.clock_.advance(0.1);
      world_.layer();
    }
    world_.inside_ = false;
    if (cancel->load()) return Status(Code::cancelled, "nobody wants it");
    if (world_.random_.percent(5)) return Status(Code::corrupt, spec.target + " is damaged");
    Result<CacheLease> lease = world_.registry_.resolve(model.identity, model.config, model.state);
    if (!lease.ok()) {
      world_.complain("a load met a conflict: " + lease.status().message());
      return lease.status();
    }
    world_.resolved(model, lease.value().manager());
    auto engine = std::make_shared<Engine>(world_, model, std::move(lease).value());
    if (Status s = engine->weights.reserve(MemoryTag::weights, 3 * world_.slab_bytes_); !s.ok())
      return s;
    ++world_.counts_.loads;
    return std::shared_ptr<ModelEngine>(engine);
  }

 private:
  Model& model_of(const std::string& name) {
    return **std::find_if(world_.models_.begin(), world_.models_.end(),
                          [&](const auto& each) { return each->spec.name == name; });
  }
  World& world_;
};

// A request, its task and what came of it.
class World::Request final : public PoolRequest, public TaskEvents {
 public:
  Request(World& of, Model& which) : world(of), model(which), task(std::make_shared<Task>()) {}

  Status start(ModelEngine& on) override {
    auto& engine = static_cast<Engine&>(on);
    if (engine.closed) return Status(Code::closed, "the engine was stopped");
    fake = engine.fake;
    task->cache = with_cache ? engine.lease.manager() : nullptr;
    // Borrowed: a request outlives its task.
    task->events = std::shared_ptr<TaskEvents>(std::shared_ptr<void>(), this);
    if (Status s = engine.scheduler.check(task->request); !s.ok()) return s;
    engine.inbox.push_back(task);
    scheduler = &engine.scheduler;
    return {};
  }
  void fail(const Status& why) override { end(why); }
  double deadline_s() const override { return task->deadline_s; }

  void started(const CacheReport& cache) override {
    if (++starts > 1) world.complain("a task was started twice");
    if (cache.matched_tokens > 0) ++world.counts_.hits;
    if (cache.tier == "disk") ++world.counts_.disk_hits;
  }
  void tokens(const AnswerPiece&, std::span<const std::uint32_t> more, std::uint32_t) override {
    if (ends > 0) world.complain("ids came after the end");
    ids.insert(ids.end(), more.begin(), more.end());
    if (world.random_.percent(2)) taken = false;
  }
  bool ready() override {
    if (!taken && (world.draining_ || world.random_.percent(30))) taken = true;
    return taken;
  }
  void ended(const Status& why, GenerateResult result) override {
    scheduler = nullptr;
    if (result.ids != ids) world.complain("the result differs from what was told");
    const auto right = fake.answer(task->request.prompt_ids, task->request.max_tokens);
    if (why.ok()
            ? ids != right
            : ids.size() > right.size() || !std::equal(ids.begin(), ids.end(), right.begin())) {
      world.complain("wrong ids");
    }
    if (why.ok()) {
      std::vector<std::uint32_t> text = task->request.prompt_ids;
      text.insert(text.end(), ids.begin(), ids.end());
      if (text.size() < 450) model.texts.push_back(std::move(text));
    }
    end(why);
    world.pool_->request_ended();
  }
  void end(const Status& why) {
    if (++ends > 1) world.complain("a request ended twice");
    status = why;
    if (why.ok()) ++world.counts_.finished;
    if (why.code() == Code::cancelled) ++world.counts_.cancelled;
    if (why.code() == Code::no_memory) ++world.counts_.no_memory;
    if (why.code() == Code::internal) world.complain("internal: " + why.message());
  }

  World& world;
  Model& model;
  std::shared_ptr<Task> task;
  FakeModel fake;
  Scheduler* scheduler = nullptr;  // while it is there
  bool with_cache = true;
  bool taken = true;
  std::vector<std::uint32_t> ids;
  Status status;
  int starts = 0;
  int ends = 0;
};

}  // namespace drafthouse
