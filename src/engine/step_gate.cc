#include "engine/step_gate.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace drafthouse {

double StepGate::least_used() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [member, state] : members_) {
    if (state.streaming || state.waiting) least = std::min(least, state.used);
  }
  return least == std::numeric_limits<double>::infinity() ? 0 : least;
}

StepGate::Member StepGate::join(double weight) {
  const std::lock_guard<std::mutex> lock(lock_);
  const Member member = ++last_member_;
  members_[member] = State{.weight = std::max(weight, 1e-3), .used = least_used()};
  return member;
}

void StepGate::leave(Member member) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    assert(inside_ != member);
    members_.erase(member);
  }
  changed_.notify_all();
}

void StepGate::set_streaming(Member member, bool on) {
  bool changed = false;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    State& state = members_[member];
    // Time in which it wanted nothing is not saved up.
    if (on && !state.streaming && !state.waiting) state.used = std::max(state.used, least_used());
    changed = state.streaming != on;
    state.streaming = on;
    if (!on) state.owed = false;
  }
  if (changed) changed_.notify_all();
}

StepGate::Member StepGate::choose() const {
  if (inside_ != 0) return 0;
  const auto owed_besides = [this](Member besides) {
    return std::any_of(members_.begin(), members_.end(), [besides](const auto& each) {
      return each.first != besides && each.second.streaming && each.second.owed;
    });
  };
  Member best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [member, state] : members_) {
    if (!state.waiting || state.used >= least) continue;
    if (state.kind == Kind::chunk && owed_besides(member)) continue;
    best = member;
    least = state.used;
  }
  return best;
}

void StepGate::enter(Member member, Kind kind) {
  std::unique_lock<std::mutex> lock(lock_);
  State& state = members_[member];
  if (!state.streaming) state.used = std::max(state.used, least_used());
  state.waiting = true;
  state.kind = kind;
  changed_.wait(lock, [this, member] { return choose() == member; });
  state.waiting = false;
  inside_ = member;
  if (kind == Kind::step) {
    state.owed = false;
    return;
  }
  for (auto& [other, each] : members_) {
    if (other != member && each.streaming) each.owed = true;
  }
}

void StepGate::exit(Member member, double seconds) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    assert(inside_ == member);
    inside_ = 0;
    State& state = members_[member];
    state.used += seconds / state.weight;
  }
  changed_.notify_all();
}

}  // namespace drafthouse
