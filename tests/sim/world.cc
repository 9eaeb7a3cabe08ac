#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "tests/sim/world_models.h"

namespace drafthouse {
namespace {

// Far more than any schedule needs: reaching it is a deadlock.
constexpr int kStepsMax = 60000;

StateDigest draft_of(StateDigest target) {
  target.bytes[31] = 1;
  return target;
}

}  // namespace

World::World(std::uint32_t seed)
    : random_(seed),
      with_disk_(random_.percent(35)),
      // On disk pages are small, so that files are.
      page_bytes_(with_disk_ ? std::size_t{4} << 10 : std::size_t{512} << 10),
      slab_bytes_(std::size_t{2} << 20),
      files_(posix_file_system()),
      disks_(files_, clock_, {}, false),
      budget_((11 + random_.below(24)) * slab_bytes_),
      registry_(&disks_),
      hooks_(random_) {
  if (with_disk_) {
    // In memory where that can be: nobody pulls a plug here.
    std::string name = std::filesystem::is_directory("/dev/shm")
                           ? "/dev/shm/dh-sim-XXXXXX"
                           : (std::filesystem::temp_directory_path() / "dh-sim-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    files_.set_hook([this](const FileOperation& operation) { return fault(operation); });
  }
  budget_.set_relief([this](std::size_t, const MemoryLedger&) { return relieve(); });
  loader_ = std::make_unique<Loader>(*this);
  PoolOptions options;
  options.own_thread = false;
  options.load_cooldown_s = 1;
  options.switch_after_s = 1;
  if (random_.percent(30)) options.idle_unload_s = 5;
  options.relieve = [this](const std::string&) {
    return std::any_of(models_.begin(), models_.end(), [this](const auto& model) {
      const auto manager = registry_.find(model->identity);
      return manager != nullptr && manager->evict(true) > 0;
    });
  };
  options.relievable = [this] { return registry_.ram_bytes(); };
  pool_ = std::make_unique<Pool>(*loader_, budget_, clock_, options);
  const std::uint32_t count = 2 + random_.below(3);
  for (std::uint32_t i = 0; i < count; ++i) {
    auto model = std::make_unique<Model>();
    model->spec.name = fmt::format("m{}", i);
    model->spec.target = fmt::format("m{}.gguf", i);
    model->spec.weight = 1 + random_.below(3);
    model->spec.queue = 6;
    // Sometimes the same files as the one before, under another label.
    const bool twin = i > 0 && random_.percent(30);
    model->identity = twin ? models_.back()->identity
                           : CacheIdentity{.target = model->spec.target, .draft = {}, .label = {}};
    if (twin) model->identity.label += "'";
    model->fake = twin ? models_.back()->fake : FakeModel{.seed = 1000 + i, .vocab = kWorldVocab};
    if (!twin) {
      model->fake.block = random_.percent(70) ? 8 : 1;
      model->fake.right_percent = random_.below(101);
      model->fake.eos = random_.percent(50) ? 3 : 0xffffffff;
    }
    model->state.layout = fake_layout(page_bytes_, model->fake.block > 1);
    model->state.budget = &budget_;
    model->state.target.bytes[0] = static_cast<std::uint8_t>(model->fake.seed);
    model->state.draft = draft_of(model->state.target);
    if (with_disk_ && random_.percent(80)) model->config.disk_directory = folder_ + "/cache";
    model->config.disk_free_bytes = 0;
    if (random_.percent(30)) model->config.disk_bytes = 40 * page_bytes_;
    model->config.ram_floor_bytes = random_.below(3) * page_bytes_;
    model->texts.emplace_back(200);
    for (std::uint32_t& id : model->texts.back()) id = random_.below(kWorldVocab);
    if (!pool_->add(model->spec).ok()) complain("a model was not taken");
    models_.push_back(std::move(model));
  }
}

World::~World() {
  close();
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Fault World::fault(const FileOperation& operation) {
  if (!disk_fails_ || operation.after || !random_.percent(5)) return {};
  ++counts_.disk_faults;
  return {.error = random_.percent(50) ? ENOSPC : EIO, .partial = random_.percent(50)};
}

// The disk tier's thread, and those that read for engines.
void World::use_disk() {
  if (!background_.empty() && random_.percent(70)) {
    const std::size_t which = random_.below(static_cast<std::uint32_t>(background_.size()));
    const std::function<void()> work = std::move(background_[which]);
    background_.erase(background_.begin() + static_cast<std::ptrdiff_t>(which));
    work();
  }
  if (!with_disk_) return;
  if (random_.percent(5)) disk_fails_ = !disk_fails_ && !draining_;
  Model& model = *models_[random_.below(static_cast<std::uint32_t>(models_.size()))];
  const auto manager = registry_.find(model.identity);
  if (manager != nullptr && manager->disk() != nullptr) manager->disk()->directory().drive();
}

void World::complain(const std::string& what) {
  if (wrong_.empty()) wrong_ = what;
}

World::Engine* World::some_engine() {
  if (engines_.empty()) return nullptr;
  return engines_[random_.below(static_cast<std::uint32_t>(engines_.size()))];
}

void World::submit() {
  Model& model = *models_[random_.below(static_cast<std::uint32_t>(models_.size()))];
  auto request = std::make_shared<Request>(*this, model);
  std::vector<std::uint32_t>& prompt = request->task->request.prompt_ids;
  if (!model.texts.empty() && random_.percent(60)) {
    const auto& before = model.texts[random_.below(static_cast<std::uint32_t>(model.texts.size()))];
    prompt = before;
    if (random_.percent(30)) {
      prompt.resize(1 + random_.below(static_cast<std::uint32_t>(prompt.size())));
    }
  }
  for (std::uint32_t left = 1 + random_.below(140); left > 0; --left) {
    prompt.push_back(random_.below(kWorldVocab));
  }
  request->task->request.max_tokens = 1 + random_.below(40);
  request->task->request.width = model.fake.block > 1 ? random_.below(9) : random_.below(2);
  request->task->priority = static_cast<int>(random_.below(3));
  request->task->salt = random_.percent(20) ? "tenant" : "";
  request->with_cache = random_.percent(90);
  if (random_.percent(10)) request->task->deadline_s = clock_.now_s() + random_.below(8);
  const Status status = pool_->submit(model.spec.name, request);
  if (!status.ok()) return;  // nothing was kept
  ++counts_.tasks;
  requests_.push_back(std::move(request));
}

void World::cancel() {
  std::vector<Request*> open;
  for (const auto& each : requests_) {
    if (each->ends == 0) open.push_back(each.get());
  }
  if (open.empty()) return;
  Request& request = *open[random_.below(static_cast<std::uint32_t>(open.size()))];
  const Status why(Code::cancelled, "the client left");
  if (request.scheduler == nullptr) {
    if (!pool_->withdraw(request.model.spec.name, &request, why)) {
      // Between the pool and its engine.
      request.task->cancelled = true;
    }
    return;
  }
  request.task->cancelled = true;
  request.scheduler->interrupt() = true;
}

void World::unload() {
  Model& model = *models_[random_.below(static_cast<std::uint32_t>(models_.size()))];
  const UnloadOptions options{.deadline_s = 0, .keep_cache = random_.percent(50)};
  if (random_.percent(20)) {
    if (!pool_->remove(model.spec.name, options).ok()) complain("a removal failed");
    if (!pool_->add(model.spec).ok()) complain("a removed name was not free");
  } else if (!pool_->unload(model.spec.name, options).ok()) {
    complain("an unload failed");
  }
}

void World::resolved(Model& model, const std::shared_ptr<CacheManager>& manager) {
  current_ = &model;
  const bool same = model.resolved_config.has_value() &&
                    model.resolved_config->same_as(model.config) &&
                    model.resolved_digest == model.state.target;
  if (model.manager != nullptr && same && manager.get() != model.manager) {
    complain("the same settings gave another manager");
  }
  if (model.manager != nullptr && !same && manager.get() == model.manager) {
    complain("other settings gave the old manager");
  }
  if (model.manager != nullptr && manager != nullptr && !same) {
    ++model.rebuilds;
    ++counts_.rebuilds;
  }
  model.manager = manager.get();
  model.resolved_config = model.config;
  model.resolved_digest = model.state.target;
  if (manager != nullptr) stores_.push_back(manager->pages());
}

void World::reconfigure() {
  Engine* engine = some_engine();
  if (engine == nullptr) return;
  Model& model = engine->model;
  // Weights that were replaced on disk show at the next load only.
  StateSpec state = model.state;
  if (model.resolved_digest != model.state.target) return;
  switch (random_.below(4)) {
    case 0: model.config.ram_bytes = random_.below(3) * 8 * page_bytes_; break;
    case 1: model.config.snapshot_tokens = 64 << random_.below(4); break;
    case 2: model.config.enabled = !model.config.enabled; break;
    default: break;
  }
  Result<CacheLease> lease = registry_.resolve(model.identity, model.config, state, &engine->lease);
  if (!lease.ok()) {
    complain("an engine's own reconfiguration failed: " + lease.status().message());
    return;
  }
  engine->lease = std::move(lease).value();
  resolved(model, engine->lease.manager());
}

// Somebody else asks for the slot of a loaded engine.
void World::contend() {
  Engine* engine = some_engine();
  if (engine == nullptr) return;
  Model& model = engine->model;
  CacheConfig config = *model.resolved_config;
  StateSpec state = model.state;
  state.target = model.resolved_digest;
  state.draft = draft_of(state.target);
  const bool other = random_.percent(70);
  if (other) config.snapshot_tokens += 1;
  Result<CacheLease> lease = registry_.resolve(model.identity, config, state);
  if (other) {
    ++counts_.conflicts;
    if (lease.ok() || lease.status().code() != Code::conflict) {
      complain("two owners of one slot, and no conflict");
    }
    return;
  }
  if (!lease.ok()) {
    complain("the same settings were refused: " + lease.status().message());
    return;
  }
  if (lease.value().manager().get() != model.manager) complain("two managers of one identity");
  current_ = &model;
}

void World::replace_weights() {
  Model& model = *models_[random_.below(static_cast<std::uint32_t>(models_.size()))];
  model.fake.seed += 1;
  model.state.target.bytes[1] = static_cast<std::uint8_t>(model.fake.seed);
  model.state.draft = draft_of(model.state.target);
}

void World::evict() {
  Model& model = *models_[random_.below(static_cast<std::uint32_t>(models_.size()))];
  const auto manager = registry_.find(model.identity);
  if (manager == nullptr) return;
  const std::size_t before = manager->ram_bytes();
  switch (random_.below(6)) {
    case 0: {
      const auto cleared = manager->clear(random_.percent(50) ? "tenant" : "");
      if (!cleared.ok() && counts_.disk_faults == 0)
        complain("clear: " + cleared.status().message());
      break;
    }
    case 1: {
      const auto cleared = manager->clear_all();
      if (!cleared.ok() && counts_.disk_faults == 0)
        complain("clear: " + cleared.status().message());
      if (manager->ram_bytes() != 0) complain("a cleared cache holds pages");
      break;
    }
    default:
      if (manager->evict(true) > 0) ++counts_.evictions;
      if (before > manager->config().ram_floor_bytes &&
          manager->ram_bytes() + 3 * page_bytes_ < manager->config().ram_floor_bytes) {
        complain("pressure went below a guaranteed floor");
      }
      break;
  }
}

bool World::relieve() {
  CacheManager* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::shared_ptr<CacheManager>> all;
  for (const CacheRegistry::Entry& entry : registry_.entries()) {
    if (entry.manager == nullptr) continue;
    all.push_back(entry.manager);
    const double cost = entry.manager->cheapest();
    if (cost < least) {
      least = cost;
      best = entry.manager.get();
    }
  }
  if (best != nullptr && best->evict(true) > 0) return true;
  for (const auto& manager : all) {
    if (manager->evict(true) > 0) return true;
  }
  return pool_->unload_idle();
}

void World::layer() {
  if (budget_.used() > budget_.limit()) complain("the budget was exceeded");
  if (draining_) return;
  const std::uint32_t what = random_.below(1000);
  if (what < 2) cancel();
  if (what >= 20 && what < 24) submit();
  if (what >= 40 && what < 50) evict();
  if (what >= 60 && what < 61) (void)pool_->pin(models_[0]->spec.name, random_.percent(50));
}

void World::proceed(Engine& engine) {
  if (!engine.asking) {
    engine.take_inbox();
    engine.work = engine.scheduler.next();
    const bool streaming = engine.scheduler.streaming();
    order_.set_streaming(engine.member, streaming);
    if (!streaming) engine.foreign_chunks = 0;
    if (engine.work == Scheduler::Work::none) {
      order_.rest(engine.member);
      return;
    }
    engine.asking = true;
    order_.ask(engine.member, engine.work == Scheduler::Work::step ? StepOrder::Kind::step
                                                                   : StepOrder::Kind::chunk);
  }
  if (order_.step_due(engine.member)) {
    ++counts_.given_up_chunks;
    engine.work = Scheduler::Work::step;
    order_.withdraw(engine.member);
    order_.ask(engine.member, StepOrder::Kind::step);
  }
}

void World::use_device() {
  const StepOrder::Member member = order_.next();
  if (member == 0) return;
  Engine& engine = **std::find_if(engines_.begin(), engines_.end(),
                                  [member](Engine* each) { return each->member == member; });
  order_.enter(member);
  if (engine.work == Scheduler::Work::chunk) {
    ++counts_.chunks;
    for (Engine* other : engines_) {
      if (other == &engine || !other->scheduler.streaming()) continue;
      if (other->foreign_chunks++ > 0) complain("two foreign chunks between two steps of a stream");
    }
  } else {
    ++counts_.steps;
    engine.foreign_chunks = 0;
  }
  const double start = clock_.now_s();
  inside_ = true;
  engine.inside = true;
  engine.scheduler.run(engine.work);
  engine.inside = false;
  inside_ = false;
  engine.asking = false;
  order_.set_streaming(member, engine.scheduler.streaming());
  if (!engine.scheduler.streaming()) engine.foreign_chunks = 0;
  order_.exit(member, clock_.now_s() - start);
}

void World::act() {
  const std::uint32_t what = random_.below(1000);
  if (what < 50) {
    if (requests_.size() < 50) submit();
  } else if (what < 55) {
    cancel();
  } else if (what < 60) {
    unload();
  } else if (what < 70) {
    reconfigure();
  } else if (what < 80) {
    contend();
  } else if (what < 82) {
    replace_weights();
  } else if (what < 95) {
    evict();
  } else if (what < 100) {
    (void)pool_->pin(models_[0]->spec.name, random_.percent(30));
  } else if (what < 105) {
    (void)pool_->want(
        models_[random_.below(static_cast<std::uint32_t>(models_.size()))]->spec.name);
  } else if (what < 115) {
    clock_.advance(0.2 * random_.below(8));
  } else if (what < 200) {
    (void)pool_->work_once();
  } else if (what < 230) {
    use_disk();
  } else if (what < 240) {
    if (const std::string wrong = hooks_.act(); !wrong.empty()) complain(wrong);
  } else if (what < 650) {
    if (Engine* engine = some_engine()) proceed(*engine);
  } else {
    use_device();
  }
}

void World::check() {
  std::vector<const HookBinding*> bound;
  for (const Engine* engine : engines_) bound.push_back(&engine->hooks);
  if (const std::string wrong = hooks_.check(bound); !wrong.empty()) complain(wrong);
  if (budget_.used() > budget_.limit()) complain("the budget was exceeded");
  for (const auto& model : models_) {
    const auto found = registry_.find(model->identity);
    if (found.get() != model->manager) {
      complain(fmt::format("{}: the registry shows {} manager", model->identity.text(),
                           found == nullptr ? "no" : "another"));
      continue;
    }
    if (found == nullptr) continue;
    if (found->stats().rebuilds != model->rebuilds) {
      complain(fmt::format("{}: {} rebuilds instead of {}", model->identity.text(),
                           found->stats().rebuilds, model->rebuilds));
    }
  }
  if (current_ != nullptr && registry_.current().get() != current_->manager) {
    complain("current() is not the one resolved last");
  }
}

void World::drain() {
  draining_ = true;
  disk_fails_ = false;
  (void)pool_->pin(models_[0]->spec.name, false);
  for (int i = 0; i < kStepsMax && wrong_.empty(); ++i) {
    const bool over = std::all_of(requests_.begin(), requests_.end(),
                                  [](const auto& each) { return each->ends > 0; });
    if (over) return;
    (void)pool_->work_once();
    use_disk();
    for (std::size_t e = 0; e < engines_.size(); ++e) {
      if (random_.percent(70)) proceed(*engines_[e]);
    }
    use_device();
    clock_.advance(0.01);
    check();
  }
  std::string open;
  for (const auto& each : requests_) {
    if (each->ends == 0) {
      open += fmt::format(" {} ({}, {} ids)", each->model.spec.name,
                          each->scheduler != nullptr ? "in its engine" : "waits", each->ids.size());
    }
  }
  complain("it does not end:" + open);
}

void World::close() {
  if (pool_ == nullptr) return;
  for (const auto& model : models_) {
    (void)pool_->unload(model->spec.name, {.deadline_s = 0, .keep_cache = random_.percent(50)});
  }
  // Reads for requests that have ended.
  for (const std::function<void()>& work : background_) work();
  background_.clear();
  // Before what its engines refer to.
  pool_.reset();
  counts_.hook_conflicts = hooks_.conflicts();
  counts_.hooks_busy = hooks_.busy();
  if (const std::string wrong = hooks_.close(); !wrong.empty()) complain(wrong);
}

std::string World::run() {
  const std::uint32_t steps = 200 + random_.below(2000);
  for (std::uint32_t i = 0; i < steps && wrong_.empty(); ++i) {
    act();
    check();
  }
  drain();
  for (const auto& each : requests_) {
    if (wrong_.empty() && each->ends != 1) complain("a request did not end exactly once");
  }
  // The pool's end may end requests that a failure left open.
  close();
  for (const auto& each : requests_) each->task->cache = nullptr;
  if (!registry_.shutdown().empty()) complain("the registry did not shut down");
  if (!registry_.entries().empty()) complain("a slot was left");
  if (budget_.used() != 0) complain(fmt::format("{} bytes leaked", budget_.used()));
  for (const auto& store : stores_) {
    if (!store.expired()) complain("a page store is still held");
  }
  return wrong_;
}

}  // namespace drafthouse
