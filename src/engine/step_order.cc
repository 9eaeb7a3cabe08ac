#include "engine/step_order.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

namespace drafthouse {

double StepOrder::floor() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [member, state] : members_) {
    if (state.present) least = std::min(least, state.used);
  }
  return least == std::numeric_limits<double>::infinity() ? last_used_ : least;
}

StepOrder::Member StepOrder::join(double weight) {
  const double used = floor();
  State& state = members_[++last_member_];
  state.weight = std::max(weight, 1e-3);
  state.used = used;
  return last_member_;
}

void StepOrder::leave(Member member) {
  assert(inside_ != member);
  members_.erase(member);
}

void StepOrder::set_streaming(Member member, bool on) {
  State& state = members_.at(member);
  state.streaming = on;
  if (!on) state.owed = false;
}

void StepOrder::ask(Member member, Kind kind) {
  State& state = members_.at(member);
  if (!state.present) state.used = std::max(state.used, floor());
  state.present = true;
  state.waiting = true;
  state.kind = kind;
}

void StepOrder::withdraw(Member member) { members_.at(member).waiting = false; }

void StepOrder::rest(Member member) {
  State& state = members_.at(member);
  state.present = false;
  state.waiting = false;
}

bool StepOrder::blocked(Member member, const State& state) const {
  if (!state.waiting || state.kind != Kind::chunk) return false;
  return std::any_of(members_.begin(), members_.end(), [member](const auto& each) {
    return each.first != member && each.second.streaming && each.second.owed;
  });
}

StepOrder::Member StepOrder::next() const {
  if (inside_ != 0) return 0;
  const State* best = nullptr;
  Member first = 0;
  for (const auto& [member, state] : members_) {
    if (!state.present || blocked(member, state)) continue;
    if (best != nullptr && std::pair(best->used, best->turn) <= std::pair(state.used, state.turn)) {
      continue;
    }
    best = &state;
    first = member;
  }
  return best != nullptr && best->waiting && !step_due(first) ? first : 0;
}

bool StepOrder::step_due(Member member) const {
  const State& state = members_.at(member);
  return state.waiting && state.kind == Kind::chunk && state.streaming && state.owed;
}

void StepOrder::enter(Member member) {
  assert(next() == member);
  State& state = members_.at(member);
  state.waiting = false;
  state.turn = ++turns_;
  last_used_ = state.used;
  inside_ = member;
  if (state.kind == Kind::step) {
    state.owed = false;
    return;
  }
  for (auto& [other, each] : members_) {
    if (other != member && each.streaming) each.owed = true;
  }
}

void StepOrder::exit(Member member, double seconds) {
  assert(inside_ == member);
  inside_ = 0;
  State& state = members_.at(member);
  state.used += seconds / state.weight;
}

}  // namespace drafthouse
