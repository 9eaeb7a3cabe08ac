#include "pool/pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/units.h"

namespace drafthouse {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Clocks that are not the machine's are looked at this often.
constexpr double kWaitMax = 1.0;

bool same_spec(const ModelSpec& a, const ModelSpec& b) {
  return a.target == b.target && a.draft == b.draft && a.label == b.label &&
         a.compute_fp32 == b.compute_fp32 && a.context == b.context && a.isa == b.isa &&
         a.cache == b.cache && a.weight == b.weight && a.sequences == b.sequences &&
         a.queue == b.queue;
}

}  // namespace

struct Pool::Model {
  struct Waiting {
    std::shared_ptr<PoolRequest> request;
    double since_s = 0;
  };

  ModelSpec spec;
  ModelState state = ModelState::registered;
  Status failure;
  double cool_until_s = 0;
  bool pinned = false;
  bool wanted = false;        // somebody waits in load()
  double wanted_since_s = 0;
  bool dry = false;           // its new requests wait, so that it can leave
  double last_use_s = 0;
  std::deque<Waiting> waiting;
  std::shared_ptr<ModelEngine> engine;
  std::optional<MemoryNeed> need;
  std::atomic<bool> cancel_load{false};
  std::uint64_t requests = 0;
  std::uint64_t loads = 0;
  std::uint64_t unloads = 0;
  std::uint64_t attempts = 0;  // loads that ended, well or not

  bool wants_load() const { return wanted || !waiting.empty(); }
  double waiting_since() const {
    double since = wanted ? wanted_since_s : kNever;
    if (!waiting.empty()) since = std::min(since, waiting.front().since_s);
    return since;
  }
  bool idle() const { return state == ModelState::ready && engine->active() == 0; }
};

Pool::Pool(EngineLoader& loader, MemoryBudget& budget, const Clock& clock, PoolOptions options)
    : loader_(loader), budget_(budget), clock_(clock), options_(std::move(options)) {
  if (options_.own_thread) thread_ = std::thread([this] { loop(); });
}

Pool::~Pool() { shut_down(); }

void Pool::shut_down() {
  {
    Guard guard(lock_);
    closed_ = true;
    stopping_ = true;
    for (const auto& [name, model] : models_) model->cancel_load = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  Guard guard(lock_);
  const Status gone(Code::closed, "the host has gone");
  for (const auto& [name, model] : models_) {
    fail_waiting(guard, *model, gone);
    if (model->state == ModelState::ready) {
      (void)take_down(guard, *model, {.deadline_s = 0, .keep_cache = false}, gone, false);
    }
  }
}

Status Pool::unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [known, model] : models_) names.push_back(known);
  return Status(Code::not_found,
                fmt::format("there is no model \"{}\"; known: {}", name,
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

Result<Pool::Model*> Pool::find(const std::string& name) {
  const auto place = models_.find(name);
  if (place == models_.end()) return unknown(name);
  return place->second.get();
}

Status Pool::add(const ModelSpec& spec) {
  if (spec.name.empty()) return Status(Code::invalid_argument, "a model needs a name");
  const Guard guard(lock_);
  if (closed_) return Status(Code::closed, "the host takes nothing new");
  const auto place = models_.find(spec.name);
  if (place != models_.end()) {
    if (same_spec(place->second->spec, spec)) return {};
    return Status(Code::conflict,
                  fmt::format("the name \"{}\" stands for {} already, with other settings or files; "
                              "remove it first or choose another name",
                              spec.name, place->second->spec.target));
  }
  auto model = std::make_unique<Model>();
  model->spec = spec;
  model->pinned = spec.pinned;
  models_.emplace(spec.name, std::move(model));
  return {};
}

Status Pool::want(const std::string& name) {
  {
    const Guard guard(lock_);
    if (closed_) return Status(Code::closed, "the host takes nothing new");
    const Result<Model*> found = find(name);
    if (!found.ok()) return found.status();
    Model& model = *found.value();
    if (model.state == ModelState::ready && !model.dry) return {};
    if (!model.wanted) {
      model.wanted = true;
      model.wanted_since_s = clock_.now_s();
    }
  }
  changed_.notify_all();
  return {};
}

Status Pool::load(const std::string& name) {
  Guard guard(lock_);
  const Result<Model*> found = find(name);
  if (!found.ok()) return found.status();
  const std::uint64_t attempts = found.value()->attempts;
  guard.unlock();
  if (Status s = want(name); !s.ok()) return s;
  guard.lock();
  while (true) {
    const Result<Model*> again = find(name);
    if (!again.ok()) return again.status();
    Model& model = *again.value();
    if (model.state == ModelState::ready && !model.dry) return {};
    if (model.attempts != attempts) return model.failure;
    if (closed_) return Status(Code::closed, "the host is closing");
    changed_.wait(guard);
  }
}

Status Pool::submit(const std::string& name, const std::shared_ptr<PoolRequest>& request) {
  std::shared_ptr<ModelEngine> engine;
  {
    const Guard guard(lock_);
    if (closed_) return Status(Code::closed, "the host takes nothing new");
    const Result<Model*> found = find(name);
    if (!found.ok()) return found.status();
    Model& model = *found.value();
    model.last_use_s = clock_.now_s();
    if (model.state == ModelState::ready && !model.dry) {
      engine = model.engine;
    } else {
      if (model.state == ModelState::failed && clock_.now_s() < model.cool_until_s) {
        return model.failure;
      }
      if (model.waiting.size() >= model.spec.queue) {
        return Status(Code::busy, fmt::format("{} requests wait for \"{}\" already; try again later",
                                              model.waiting.size(), name));
      }
      model.waiting.push_back({request, clock_.now_s()});
    }
    ++model.requests;
  }
  if (engine == nullptr) {
    changed_.notify_all();
    return {};
  }
  Status status = request->start(*engine);
  if (status.code() != Code::closed) return status;
  // It was taken down between the look and the start: wait for the next load like everybody else.
  {
    const Guard guard(lock_);
    const Result<Model*> found = find(name);
    if (closed_ || !found.ok()) return status;
    found.value()->waiting.push_back({request, clock_.now_s()});
  }
  changed_.notify_all();
  return {};
}

bool Pool::withdraw(const std::string& name, const PoolRequest* request, const Status& status) {
  std::shared_ptr<PoolRequest> gone;
  {
    const Guard guard(lock_);
    const Result<Model*> found = find(name);
    if (!found.ok()) return false;
    auto& waiting = found.value()->waiting;
    const auto place = std::find_if(waiting.begin(), waiting.end(), [request](const auto& each) {
      return each.request.get() == request;
    });
    if (place == waiting.end()) return false;
    gone = std::move(place->request);
    waiting.erase(place);
  }
  gone->fail(status);
  changed_.notify_all();
  return true;
}

void Pool::request_ended() {
  // The lock orders this with waiters that have just looked.
  { const Guard guard(lock_); }
  changed_.notify_all();
}

void Pool::fail_waiting(Guard& guard, Model& model, const Status& status) {
  std::deque<Model::Waiting> gone;
  gone.swap(model.waiting);
  guard.unlock();
  for (const Model::Waiting& each : gone) each.request->fail(status);
  guard.lock();
}

void Pool::log(Guard& guard, LogLevel level, const std::string& line) {
  if (!options_.log) return;
  guard.unlock();
  options_.log(level, line);
  guard.lock();
}

Status Pool::take_down(Guard& guard, Model& model, const UnloadOptions& options, const Status& why,
                       bool wait) {
  model.state = ModelState::unloading;
  const double deadline = clock_.now_s() + options.deadline_s;
  const std::shared_ptr<ModelEngine> engine = model.engine;
  while (wait && engine->active() > 0 && !stopping_) {
    const double left = deadline - clock_.now_s();
    if (left <= 0) break;
    changed_.wait_for(guard, std::chrono::duration<double>(std::min(left, kWaitMax)));
  }
  guard.unlock();
  engine->stop(why);
  Status status = engine->release(options.keep_cache, std::max(1.0, deadline - clock_.now_s()));
  guard.lock();
  model.engine.reset();
  guard.unlock();
  // Where this was the last owner the memory goes here, outside the lock.
  const_cast<std::shared_ptr<ModelEngine>&>(engine).reset();
  guard.lock();
  model.state = ModelState::registered;
  model.dry = false;
  ++model.unloads;
  changed_.notify_all();
  return status;
}

Status Pool::unload(const std::string& name, const UnloadOptions& options) {
  Guard guard(lock_);
  while (true) {
    const Result<Model*> found = find(name);
    if (!found.ok()) return found.status();
    Model& model = *found.value();
    if (model.state == ModelState::ready) {
      Status status = take_down(guard, model, options,
                                Status(Code::closed, fmt::format("\"{}\" is being unloaded", name)), true);
      return status;
    }
    if (model.state == ModelState::loading) model.cancel_load = true;
    if (model.state != ModelState::loading && model.state != ModelState::unloading) return {};
    changed_.wait(guard);
  }
}

Status Pool::remove(const std::string& name, const UnloadOptions& options) {
  if (Status s = unload(name, options); !s.ok()) return s;
  Guard guard(lock_);
  const Result<Model*> found = find(name);
  if (!found.ok()) return {};
  Model& model = *found.value();
  if (model.state == ModelState::loading || model.state == ModelState::ready ||
      model.state == ModelState::unloading) {
    return Status(Code::busy, fmt::format("\"{}\" was loaded again meanwhile; try again", name));
  }
  const auto place = models_.find(name);
  const std::unique_ptr<Model> gone = std::move(place->second);
  models_.erase(place);
  fail_waiting(guard, *gone, Status(Code::closed, fmt::format("\"{}\" was removed", name)));
  changed_.notify_all();
  return {};
}

Status Pool::pin(const std::string& name, bool on) {
  const Guard guard(lock_);
  const Result<Model*> found = find(name);
  if (!found.ok()) return found.status();
  found.value()->pinned = on;
  return {};
}

Status Pool::set_cache(const std::string& name, const CacheConfig& cache) {
  const Guard guard(lock_);
  const Result<Model*> found = find(name);
  if (!found.ok()) return found.status();
  found.value()->spec.cache = cache;
  return {};
}

bool Pool::unload_idle() {
  Guard guard(lock_);
  Model* oldest = nullptr;
  for (const auto& [name, model] : models_) {
    if (!model->idle() || model->pinned) continue;
    if (oldest == nullptr || model->last_use_s < oldest->last_use_s) oldest = model.get();
  }
  if (oldest == nullptr) return false;
  const std::string name = oldest->spec.name;
  (void)take_down(guard, *oldest, {.deadline_s = 0, .keep_cache = true},
                  Status(Code::closed, "unloaded to make room"), false);
  log(guard, LogLevel::info, fmt::format("unloaded idle \"{}\" to make room", name));
  return true;
}

void Pool::close() {
  {
    const Guard guard(lock_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool Pool::wait_until_idle(double deadline_s) {
  Guard guard(lock_);
  const double deadline = clock_.now_s() + deadline_s;
  while (true) {
    const bool busy = std::any_of(models_.begin(), models_.end(), [](const auto& each) {
      const Model& model = *each.second;
      return !model.waiting.empty() || (model.engine != nullptr && model.engine->active() > 0);
    });
    if (!busy) return true;
    const double left = deadline - clock_.now_s();
    if (left <= 0) return false;
    changed_.wait_for(guard, std::chrono::duration<double>(std::min(left, kWaitMax)));
  }
}

Pool::Entry Pool::entry_of(const Model& model) const {
  return {.spec = model.spec,
          .state = model.state,
          .why = model.failure.ok() ? "" : model.failure.message(),
          .pinned = model.pinned,
          .waiting = static_cast<std::uint32_t>(model.waiting.size()),
          .requests = model.requests,
          .loads = model.loads,
          .unloads = model.unloads,
          .engine = model.engine};
}

std::vector<Pool::Entry> Pool::entries() const {
  const Guard guard(lock_);
  std::vector<Entry> all;
  for (const auto& [name, model] : models_) all.push_back(entry_of(*model));
  return all;
}

Result<Pool::Entry> Pool::entry(const std::string& name) const {
  const Guard guard(lock_);
  const auto place = models_.find(name);
  if (place == models_.end()) return unknown(name);
  return entry_of(*place->second);
}

// ---- the pool's thread

void Pool::expire(Guard& guard) {
  const double now = clock_.now_s();
  std::vector<std::shared_ptr<PoolRequest>> late;
  for (const auto& [name, model] : models_) {
    std::erase_if(model->waiting, [&](const Model::Waiting& each) {
      const double deadline = each.request->deadline_s();
      if (deadline == 0 || now < deadline) return false;
      late.push_back(each.request);
      return true;
    });
  }
  if (late.empty()) return;
  guard.unlock();
  for (const auto& request : late) {
    request->fail(Status(Code::cancelled, "the request's deadline passed while it waited for its model"));
  }
  guard.lock();
}

Pool::Model* Pool::next_to_load() {
  const double now = clock_.now_s();
  Model* first = nullptr;
  for (const auto& [name, model] : models_) {
    const bool loadable = model->state == ModelState::registered ||
                          model->state == ModelState::waiting || model->state == ModelState::failed;
    if (!loadable || !model->wants_load()) continue;
    if (model->state == ModelState::failed && now < model->cool_until_s && !model->wanted) continue;
    if (first == nullptr || model->waiting_since() < first->waiting_since()) first = model.get();
  }
  return first;
}

double Pool::next_moment() const {
  double first = kNever;
  for (const auto& [name, model] : models_) {
    for (const Model::Waiting& each : model->waiting) {
      if (each.request->deadline_s() != 0) first = std::min(first, each.request->deadline_s());
    }
    if (model->state == ModelState::failed && model->wants_load()) {
      first = std::min(first, model->cool_until_s);
    }
    if (model->state == ModelState::waiting) {
      first = std::min(first, model->waiting_since() + options_.switch_after_s);
    }
    if (options_.idle_unload_s > 0 && model->idle() && !model->pinned) {
      first = std::min(first, model->last_use_s + options_.idle_unload_s);
    }
  }
  return first;
}

std::string Pool::refusal(const Model& model, std::size_t free) const {
  const MemoryNeed& need = *model.need;
  std::vector<std::string> pinned;
  for (const auto& [name, other] : models_) {
    if (other->pinned && other->engine != nullptr) pinned.push_back(name);
  }
  return fmt::format("\"{}\" needs {}: weights {}, pages {}, scratch {}; free {} of {}{}",
                     model.spec.name, human_bytes(need.total()), human_bytes(need.weights),
                     human_bytes(need.pages), human_bytes(need.scratch), human_bytes(free),
                     human_bytes(budget_.limit()),
                     pinned.empty() ? std::string()
                                    : fmt::format("; pinned: {}", fmt::join(pinned, ", ")));
}

bool Pool::make_room(Guard& guard, Model& model) {
  if (budget_.limit() == 0) return true;
  const std::size_t needed = model.need->total();
  while (!budget_.fits(needed)) {
    const std::size_t used = budget_.used();
    const std::size_t free = budget_.limit() > used ? budget_.limit() - used : 0;
    std::size_t could_go = 0;
    Model* idle = nullptr;
    bool busy = false;
    for (const auto& [name, other] : models_) {
      if (other->state != ModelState::ready || other->pinned) continue;
      could_go += other->engine->exclusive_bytes();
      if (!other->idle()) {
        busy = true;
      } else if (idle == nullptr || other->last_use_s < idle->last_use_s) {
        idle = other.get();
      }
    }
    // Cached state gives way to a model that somebody wants.
    if (free + could_go < needed && options_.relieve && options_.relieve(needed)) continue;
    if (free + could_go < needed) {
      model.failure = Status(Code::no_memory, refusal(model, free));
      return false;
    }
    if (idle != nullptr) {
      const std::string name = idle->spec.name;
      (void)take_down(guard, *idle, {.deadline_s = 0, .keep_cache = true},
                      Status(Code::closed, "unloaded to make room"), false);
      log(guard, LogLevel::info,
          fmt::format("unloaded \"{}\" for \"{}\": {} needed, {} free", name, model.spec.name,
                      human_bytes(needed), human_bytes(free)));
      continue;
    }
    if (busy && clock_.now_s() >= model.waiting_since() + options_.switch_after_s) {
      for (const auto& [name, other] : models_) {
        if (other->state == ModelState::ready && !other->pinned) other->dry = true;
      }
    }
    model.state = ModelState::waiting;
    return false;
  }
  return true;
}

bool Pool::load_now(Guard& guard, Model& model) {
  model.state = ModelState::loading;
  model.cancel_load = false;
  guard.unlock();
  Result<std::shared_ptr<ModelEngine>> loaded = loader_.load(model.spec, &model.cancel_load);
  guard.lock();
  ++model.attempts;
  model.wanted = false;
  for (const auto& [name, other] : models_) other->dry = false;
  if (!loaded.ok()) {
    model.state = ModelState::failed;
    model.failure = loaded.status();
    model.cool_until_s = clock_.now_s() + options_.load_cooldown_s;
    return false;
  }
  model.engine = std::move(loaded).value();
  model.state = ModelState::ready;
  model.failure = {};
  model.last_use_s = clock_.now_s();
  ++model.loads;
  std::deque<Model::Waiting> group;
  group.swap(model.waiting);
  const std::shared_ptr<ModelEngine> engine = model.engine;
  guard.unlock();
  for (const Model::Waiting& each : group) {
    if (Status s = each.request->start(*engine); !s.ok()) each.request->fail(s);
  }
  guard.lock();
  return true;
}

bool Pool::work_once() {
  Guard guard(lock_);
  expire(guard);
  const double now = clock_.now_s();
  if (options_.idle_unload_s > 0) {
    for (const auto& [name, model] : models_) {
      if (!model->idle() || model->pinned || model->wants_load()) continue;
      if (now < model->last_use_s + options_.idle_unload_s) continue;
      const std::string known = name;
      (void)take_down(guard, *model, {.deadline_s = 0, .keep_cache = true},
                      Status(Code::closed, "unloaded after its idle time"), false);
      log(guard, LogLevel::info, fmt::format("unloaded \"{}\": idle for {:.0f} s", known,
                                             options_.idle_unload_s));
      return true;
    }
  }
  Model* model = next_to_load();
  if (model == nullptr) return false;
  if (!model->need.has_value()) {
    const ModelSpec spec = model->spec;
    model->state = ModelState::loading;
    guard.unlock();
    Result<MemoryNeed> need = loader_.estimate(spec);
    guard.lock();
    model->state = ModelState::registered;
    if (need.ok()) {
      model->need = need.value();
    } else {
      model->failure = need.status();
    }
  }
  bool failed = !model->need.has_value();
  if (!failed) {
    if (make_room(guard, *model)) {
      if (load_now(guard, *model)) {
        // Others may have removed it since; it is not looked at again.
        changed_.notify_all();
        return true;
      }
    } else if (model->state == ModelState::waiting) {
      return false;
    } else {
      failed = true;
    }
  }
  if (failed) {
    model->state = ModelState::failed;
    model->cool_until_s = clock_.now_s() + options_.load_cooldown_s;
    model->wanted = false;
    ++model->attempts;
  }
  // Files may be repaired before the next attempt.
  model->need.reset();
  const Status why = model->failure;
  const std::string line = fmt::format("loading \"{}\" failed: {}", model->spec.name, why.message());
  fail_waiting(guard, *model, why);
  log(guard, LogLevel::error, line);
  changed_.notify_all();
  return true;
}

void Pool::loop() {
  while (true) {
    if (work_once()) continue;
    Guard guard(lock_);
    if (stopping_) return;
    if (Model* model = next_to_load(); model != nullptr && model->state != ModelState::waiting) continue;
    const double wait = std::clamp(next_moment() - clock_.now_s(), 0.001, kWaitMax);
    changed_.wait_for(guard, std::chrono::duration<double>(wait));
    if (stopping_) return;
  }
}

}  // namespace drafthouse
