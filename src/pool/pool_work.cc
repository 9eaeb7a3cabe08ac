// The pool's own threads: what is loaded next, what has to leave for it, and deadlines.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/units.h"
#include "pool/pool_model.h"

namespace drafthouse {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Clocks that are not the machine's are looked at this often.
constexpr double kWaitMax = 1.0;

}  // namespace

void Pool::expire(Guard& guard) {
  const double now = clock_.now_s();
  std::vector<std::shared_ptr<PoolRequest>> late;
  for (const auto& [name, model] : models_) {
    const std::size_t before = model->waiting.size();
    std::erase_if(model->waiting, [&](const Model::Waiting& each) {
      const double deadline = each.request->deadline_s();
      if (deadline == 0 || now < deadline) return false;
      late.push_back(each.request);
      ++model->cancelled;
      return true;
    });
    if (before != model->waiting.size() && !model->wants_load()) model->cancel_load = true;
  }
  if (late.empty()) return;
  guard.unlock();
  for (const auto& request : late) {
    request->fail(
        Status(Code::cancelled, "the request's deadline passed while it waited for its model"));
  }
  guard.lock();
  tell_changed();
}

double Pool::next_deadline() const {
  double first = kNever;
  for (const auto& [name, model] : models_) {
    for (const Model::Waiting& each : model->waiting) {
      if (each.request->deadline_s() != 0) first = std::min(first, each.request->deadline_s());
    }
  }
  return first;
}

void Pool::tidy(Guard& guard) {
  note_activity();
  bool somebody_waits = false;
  for (const auto& [name, model] : models_) {
    if (model->state != ModelState::waiting) continue;
    if (model->wants_load()) {
      somebody_waits = true;
    } else {
      model->state = ModelState::registered;
    }
  }
  std::vector<ModelRef> groups;
  for (const auto& [name, model] : models_) {
    if (!somebody_waits) model->dry = false;
    if (!model->open()) continue;
    if (model->wanted) tell_changed();
    model->wanted = false;
    if (!model->waiting.empty()) groups.push_back(model);
  }
  for (const ModelRef& model : groups) {
    if (model->open()) serve(guard, model);
  }
}

bool Pool::unload_timed_out(Guard& guard) {
  if (options_.idle_unload_s <= 0) return false;
  const double now = clock_.now_s();
  for (const auto& [name, each] : models_) {
    const ModelRef model = each;
    if (!model->idle() || model->pinned || model->wants_load()) continue;
    if (now < model->last_use_s + options_.idle_unload_s) continue;
    const std::string line =
        fmt::format("unloaded \"{}\": idle for {:.0f} s", name, options_.idle_unload_s);
    (void)take_down(guard, *model, {.deadline_s = 0, .keep_cache = true},
                    Status(Code::closed, "unloaded after its idle time"), false);
    log(guard, LogLevel::info, line);
    return true;
  }
  return false;
}

Pool::ModelRef Pool::next_to_load() const {
  const double now = clock_.now_s();
  ModelRef first;
  for (const auto& [name, model] : models_) {
    const bool loadable = model->state == ModelState::registered ||
                          model->state == ModelState::waiting || model->state == ModelState::failed;
    if (!loadable || !model->wants_load() || model->removing) continue;
    if (model->state == ModelState::failed && now < model->cool_until_s && !model->wanted) continue;
    if (first == nullptr || model->waiting_since() < first->waiting_since()) first = model;
  }
  return first;
}

double Pool::next_moment() const {
  const double now = clock_.now_s();
  double first = kNever;
  const auto consider = [&](double moment) {
    if (moment > now) first = std::min(first, moment);
  };
  for (const auto& [name, model] : models_) {
    if (model->state == ModelState::failed && model->wants_load()) consider(model->cool_until_s);
    if (model->state == ModelState::waiting) {
      consider(model->waiting_since() + options_.switch_after_s);
    }
    if (options_.idle_unload_s > 0 && model->idle() && !model->pinned) {
      consider(model->last_use_s + options_.idle_unload_s);
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
  const ByteUnit unit = byte_unit(need.total());
  return fmt::format(
      "\"{}\" needs {} {}: weights {}, pages {}, scratch {}; free {} of {}{}", model.spec.name,
      unit.number(need.total()), unit.name, unit.number(need.weights), unit.number(need.pages),
      unit.number(need.scratch), unit.number(free), unit.number(budget_.limit()),
      pinned.empty() ? std::string() : fmt::format("; pinned: {}", fmt::join(pinned, ", ")));
}

Pool::Attempt Pool::estimate(Guard& guard, Model& model) {
  if (model.need.has_value()) return Attempt::loaded;
  const ModelSpec spec = model.spec;  // its cache settings may change meanwhile
  guard.unlock();
  Result<MemoryNeed> need = loader_.estimate(spec);
  guard.lock();
  if (!need.ok()) {
    model.failure = need.status();
    return Attempt::failed;
  }
  model.need = need.value();
  return Attempt::loaded;
}

Pool::Attempt Pool::make_room(Guard& guard, Model& model) {
  if (budget_.limit() == 0) return Attempt::loaded;
  const std::size_t needed = model.need->total();
  while (!budget_.fits(needed)) {
    if (model.cancel_load) return Attempt::given_up;
    const std::size_t used = budget_.used();
    const std::size_t free = budget_.limit() > used ? budget_.limit() - used : 0;
    std::size_t could_go = 0;  // with models; what is cached comes on top
    ModelRef idle;
    for (const auto& [name, other] : models_) {
      if (other->state != ModelState::ready || other->pinned) continue;
      could_go += other->engine->exclusive_bytes();
      if (!other->idle()) continue;
      if (idle == nullptr || other->last_use_s < idle->last_use_s) idle = other;
    }
    const std::size_t cached = options_.relievable ? options_.relievable() : 0;
    if (cached > 0 && free + could_go + cached >= needed) {
      const std::string name = model.spec.name;
      guard.unlock();
      const bool freed = options_.relieve(name);
      guard.lock();
      if (freed) continue;
    }
    if (free + could_go < needed) {
      model.failure = Status(Code::no_memory, refusal(model, free));
      return Attempt::failed;
    }
    if (idle != nullptr) {
      const std::string line =
          fmt::format("unloaded \"{}\" for \"{}\": {} needed, {} free", idle->spec.name,
                      model.spec.name, human_bytes(needed), human_bytes(free));
      (void)take_down(guard, *idle, {.deadline_s = 0, .keep_cache = true},
                      Status(Code::closed, "unloaded to make room"), false);
      log(guard, LogLevel::info, line);
      continue;
    }
    if (clock_.now_s() >= model.waiting_since() + options_.switch_after_s) {
      for (const auto& [name, other] : models_) {
        if (other->state == ModelState::ready && !other->pinned) other->dry = true;
      }
    }
    return Attempt::must_wait;
  }
  return Attempt::loaded;
}

Pool::Attempt Pool::load_now(Guard& guard, Model& model) {
  if (model.cancel_load) return Attempt::given_up;
  const ModelSpec spec = model.spec;
  guard.unlock();
  Result<std::shared_ptr<ModelEngine>> loaded = loader_.load(spec, &model.cancel_load);
  guard.lock();
  if (!loaded.ok()) {
    if (model.cancel_load && loaded.status().code() == Code::cancelled) return Attempt::given_up;
    model.failure = loaded.status();
    if (model.failure.code() == Code::no_memory) {
      model.failure =
          Status(Code::no_memory, fmt::format("\"{}\" does not fit after all: {}", model.spec.name,
                                              loaded.status().message()));
    }
    return Attempt::failed;
  }
  model.engine = std::move(loaded).value();
  model.state = ModelState::ready;
  model.failure = {};
  model.wanted = false;
  model.last_use_s = clock_.now_s();
  ++model.loads;
  ++model.attempts;
  return Attempt::loaded;
}

Pool::Attempt Pool::try_load(Guard& guard, const ModelRef& model) {
  model->state = ModelState::loading;
  model->cancel_load = false;
  model->unload_asked = false;
  Attempt attempt = estimate(guard, *model);
  if (attempt == Attempt::loaded) attempt = make_room(guard, *model);
  if (attempt == Attempt::loaded) attempt = load_now(guard, *model);
  if (attempt == Attempt::must_wait && model->cancel_load) attempt = Attempt::given_up;
  return attempt;
}

bool Pool::work_once() {
  Guard guard(lock_);
  expire(guard);
  tidy(guard);
  if (unload_timed_out(guard)) return true;
  const ModelRef model = next_to_load();
  if (model == nullptr) return false;
  const Attempt attempt = try_load(guard, model);
  if (attempt == Attempt::loaded) {
    for (const auto& [name, other] : models_) other->dry = false;
    tell_changed();
    serve(guard, model);
    return true;
  }
  if (attempt == Attempt::must_wait) {
    model->state = ModelState::waiting;
    return false;
  }
  // Files may be repaired before the next attempt.
  model->need.reset();
  if (attempt == Attempt::given_up && !model->unload_asked) {
    // Nobody wanted it any more; whoever came since then has it loaded again.
    model->state = ModelState::registered;
    tell_changed();
    return true;
  }
  model->wanted = false;
  ++model->attempts;
  if (attempt == Attempt::given_up) {
    model->state = ModelState::registered;
    model->failure = Status(
        Code::closed, fmt::format("\"{}\" was unloaded while it was loading", model->spec.name));
  } else {
    model->state = ModelState::failed;
    model->cool_until_s = clock_.now_s() + options_.load_cooldown_s;
  }
  const Status why = model->failure;
  const std::string line =
      fmt::format("loading \"{}\" failed: {}", model->spec.name, why.message());
  tell_changed();
  fail_waiting(guard, *model, why);
  if (attempt == Attempt::failed) log(guard, LogLevel::error, line);
  return true;
}

void Pool::loop() {
  Guard guard(lock_);
  while (!stopping_) {
    const std::uint64_t seen = changes_;
    guard.unlock();
    const bool worked = work_once();
    guard.lock();
    if (worked || changes_ != seen || stopping_) continue;
    const double wait = std::clamp(next_moment() - clock_.now_s(), 0.001, kWaitMax);
    changed_.wait_for(guard, std::chrono::duration<double>(wait));
  }
}

void Pool::watch() {
  Guard guard(lock_);
  while (!stopping_) {
    expire(guard);
    if (stopping_) return;
    const double next = next_deadline();
    if (next == kNever) {
      changed_.wait(guard);
    } else {
      const double wait = std::clamp(next - clock_.now_s(), 0.001, kWaitMax);
      changed_.wait_for(guard, std::chrono::duration<double>(wait));
    }
  }
}

}  // namespace drafthouse
