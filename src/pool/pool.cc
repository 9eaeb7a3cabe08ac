#include "pool/pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/memory.h"
#include "pool/pool_model.h"

namespace drafthouse {
namespace {

// Clocks that are not the machine's are looked at this often.
constexpr double kWaitMax = 1.0;

bool same_spec(const ModelSpec& a, const ModelSpec& b) {
  return a.target == b.target && a.draft == b.draft && a.label == b.label &&
         a.compute_fp32 == b.compute_fp32 && a.context == b.context && a.isa == b.isa &&
         a.packed_directory == b.packed_directory && a.cache == b.cache && a.weight == b.weight &&
         a.sequences == b.sequences && a.queue == b.queue && a.draft_window == b.draft_window &&
         a.draft_sink == b.draft_sink;
}

}  // namespace

Pool::Pool(EngineLoader& loader, MemoryBudget& budget, const Clock& clock, PoolOptions options)
    : loader_(loader), budget_(budget), clock_(clock), options_(std::move(options)) {
  if (!options_.own_thread) return;
  thread_ = std::thread([this] { loop(); });
  watch_ = std::thread([this] { watch(); });
}

Pool::~Pool() { shut_down(); }

void Pool::shut_down() {
  {
    Guard guard(lock_);
    closed_ = true;
    stopping_ = true;
    for (const auto& [name, model] : models_) model->cancel_load = true;
    tell_changed();
  }
  if (thread_.joinable()) thread_.join();
  if (watch_.joinable()) watch_.join();
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

Result<Pool::ModelRef> Pool::find(const std::string& name) {
  const auto place = models_.find(name);
  if (place == models_.end()) return unknown(name);
  if (place->second->removing) {
    return Status(Code::closed, fmt::format("\"{}\" is being removed", name));
  }
  return place->second;
}

void Pool::tell_changed() {
  ++changes_;
  changed_.notify_all();
}

void Pool::note_activity() {
  for (const auto& [name, model] : models_) {
    if (model->state != ModelState::ready) continue;
    const bool busy = model->busy();
    // The last moment of use is the end of the last request, not its beginning.
    if (busy || model->was_active) model->last_use_s = clock_.now_s();
    model->was_active = busy;
  }
}

Status Pool::add(const ModelSpec& spec) {
  if (spec.name.empty()) return Status(Code::invalid_argument, "a model needs a name");
  const Guard guard(lock_);
  if (closed_) return Status(Code::closed, "the host takes nothing new");
  const auto place = models_.find(spec.name);
  if (place != models_.end()) {
    if (same_spec(place->second->spec, spec)) return {};
    return Status(
        Code::conflict,
        fmt::format("the name \"{}\" stands for {} already, with other settings or files; "
                    "remove it first or choose another name",
                    spec.name, place->second->spec.target));
  }
  auto model = std::make_shared<Model>();
  model->spec = spec;
  model->pinned = spec.pinned;
  models_.emplace(spec.name, std::move(model));
  return {};
}

Status Pool::want(const std::string& name) {
  const Guard guard(lock_);
  if (closed_) return Status(Code::closed, "the host takes nothing new");
  const Result<ModelRef> found = find(name);
  if (!found.ok()) return found.status();
  Model& model = *found.value();
  if (model.open()) return {};
  if (!model.wanted) {
    model.wanted = true;
    model.wanted_since_s = clock_.now_s();
  }
  tell_changed();
  return {};
}

Status Pool::load(const std::string& name) {
  Guard guard(lock_);
  const Result<ModelRef> found = find(name);
  if (!found.ok()) return found.status();
  const ModelRef model = found.value();
  const std::uint64_t attempts = model->attempts;
  guard.unlock();
  if (Status s = want(name); !s.ok()) return s;
  guard.lock();
  while (true) {
    if (model->open()) return {};
    if (model->attempts != attempts) return model->failure;
    if (model->removing) return Status(Code::closed, fmt::format("\"{}\" was removed", name));
    if (closed_) return Status(Code::closed, "the host is closing");
    changed_.wait(guard);
  }
}

Status Pool::submit(const std::string& name, const std::shared_ptr<PoolRequest>& request) {
  Guard guard(lock_);
  std::shared_ptr<ModelEngine> tried;
  Status refused;
  while (true) {
    if (closed_) return Status(Code::closed, "the host takes nothing new");
    const Result<ModelRef> found = find(name);
    if (!found.ok()) return found.status();
    const ModelRef model = found.value();
    model->last_use_s = clock_.now_s();
    if (!model->open()) {
      if (model->state == ModelState::failed && clock_.now_s() < model->cool_until_s) {
        return model->failure;
      }
      if (model->waiting.size() >= model->spec.queue) {
        return Status(Code::busy,
                      fmt::format("{} requests wait for \"{}\" already; try again later",
                                  model->waiting.size(), name));
      }
      model->waiting.push_back({request, clock_.now_s()});
      ++model->requests;
      tell_changed();
      return {};
    }
    // Taken down between the look and the start, it waits for the next load like everybody else.
    if (tried == model->engine) return refused;
    tried = model->engine;
    model->was_active = true;
    ++model->starting;
    guard.unlock();
    refused = request->start(*tried);
    guard.lock();
    --model->starting;
    if (refused.code() != Code::closed) {
      if (refused.ok()) ++model->requests;
      if (model->state != ModelState::ready) tell_changed();
      return refused;
    }
  }
}

bool Pool::withdraw(const std::string& name, const PoolRequest* request, const Status& status) {
  std::shared_ptr<PoolRequest> gone;
  {
    const Guard guard(lock_);
    const auto known = models_.find(name);
    if (known == models_.end()) return false;
    Model& model = *known->second;
    const auto place = std::find_if(
        model.waiting.begin(), model.waiting.end(),
        [request](const Model::Waiting& each) { return each.request.get() == request; });
    if (place == model.waiting.end()) return false;
    gone = std::move(place->request);
    model.waiting.erase(place);
    model.count_end(status);
    if (!model.wants_load()) model.cancel_load = true;
    tell_changed();
  }
  gone->fail(status);
  return true;
}

void Pool::request_ended() {
  const Guard guard(lock_);
  note_activity();
  tell_changed();
}

void Pool::fail_waiting(Guard& guard, Model& model, const Status& status) {
  std::deque<Model::Waiting> gone;
  gone.swap(model.waiting);
  for (std::size_t i = 0; i < gone.size(); ++i) model.count_end(status);
  guard.unlock();
  for (const Model::Waiting& each : gone) each.request->fail(status);
  guard.lock();
}

void Pool::serve(Guard& guard, const ModelRef& model) {
  std::deque<Model::Waiting> group;
  group.swap(model->waiting);
  const std::shared_ptr<ModelEngine> engine = model->engine;
  model->was_active = true;
  ++model->starting;
  guard.unlock();
  std::vector<Status> refused;
  for (const Model::Waiting& each : group) {
    Status status = each.request->start(*engine);
    if (status.ok()) continue;
    each.request->fail(status);
    refused.push_back(std::move(status));
  }
  guard.lock();
  for (const Status& status : refused) model->count_end(status);
  --model->starting;
  tell_changed();
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
  std::shared_ptr<ModelEngine> engine = model.engine;
  while (wait && model.busy() && !stopping_) {
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
  engine.reset();
  trim_heap();
  guard.lock();
  model.state = ModelState::registered;
  model.dry = false;
  model.was_active = false;
  ++model.unloads;
  tell_changed();
  return status;
}

Status Pool::unload(const std::string& name, const UnloadOptions& options) {
  Guard guard(lock_);
  while (true) {
    const auto place = models_.find(name);
    if (place == models_.end()) return unknown(name);
    const ModelRef model = place->second;
    if (model->state == ModelState::ready) {
      return take_down(guard, *model, options,
                       Status(Code::closed, fmt::format("\"{}\" is being unloaded", name)), true);
    }
    if (model->state == ModelState::loading) {
      model->unload_asked = true;
      model->cancel_load = true;
    } else if (model->state != ModelState::unloading) {
      return {};
    }
    changed_.wait(guard);
  }
}

Status Pool::remove(const std::string& name, const UnloadOptions& options) {
  {
    const Guard guard(lock_);
    const Result<ModelRef> found = find(name);
    if (!found.ok()) return found.status();
    found.value()->removing = true;
  }
  const Status status = unload(name, options);
  Guard guard(lock_);
  const auto place = models_.find(name);
  const ModelRef model = place->second;
  if (!status.ok()) {
    model->removing = false;
    tell_changed();
    return status;
  }
  models_.erase(place);
  fail_waiting(guard, *model, Status(Code::closed, fmt::format("\"{}\" was removed", name)));
  tell_changed();
  return {};
}

Status Pool::pin(const std::string& name, bool on) {
  const Guard guard(lock_);
  const Result<ModelRef> found = find(name);
  if (!found.ok()) return found.status();
  found.value()->pinned = on;
  tell_changed();
  return {};
}

Status Pool::set_cache(const std::string& name, const CacheConfig& cache) {
  const Guard guard(lock_);
  const Result<ModelRef> found = find(name);
  if (!found.ok()) return found.status();
  found.value()->spec.cache = cache;
  return {};
}

bool Pool::unload_idle() {
  Guard guard(lock_);
  ModelRef oldest;
  for (const auto& [name, model] : models_) {
    if (!model->idle() || model->pinned) continue;
    if (oldest == nullptr || model->last_use_s < oldest->last_use_s) oldest = model;
  }
  if (oldest == nullptr) return false;
  const std::string name = oldest->spec.name;
  (void)take_down(guard, *oldest, {.deadline_s = 0, .keep_cache = true},
                  Status(Code::closed, "unloaded to make room"), false);
  log(guard, LogLevel::info, fmt::format("unloaded idle \"{}\" to make room", name));
  return true;
}

void Pool::close() {
  const Guard guard(lock_);
  closed_ = true;
  tell_changed();
}

bool Pool::wait_until_idle(double deadline_s) {
  Guard guard(lock_);
  const double deadline = clock_.now_s() + deadline_s;
  while (true) {
    const bool busy = std::any_of(models_.begin(), models_.end(), [](const auto& each) {
      return !each.second->waiting.empty() || each.second->busy();
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
          .cancelled = model.cancelled,
          .failed = model.failed,
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

}  // namespace drafthouse
