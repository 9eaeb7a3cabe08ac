#include "engine/step_gate.h"

namespace drafthouse {

StepGate::Member StepGate::join(double weight) {
  const std::lock_guard<std::mutex> lock(lock_);
  return order_.join(weight);
}

void StepGate::leave(Member member) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    order_.leave(member);
    closed_.erase(member);
  }
  changed_.notify_all();
}

void StepGate::set_streaming(Member member, bool on) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    order_.set_streaming(member, on);
  }
  if (!on) changed_.notify_all();
}

StepGate::Entry StepGate::enter(Member member, Kind kind) {
  std::unique_lock<std::mutex> lock(lock_);
  order_.ask(member, kind);
  // Whoever's place was kept may stand behind others, now that it says what it wants.
  changed_.notify_all();
  changed_.wait(lock, [this, member] {
    return order_.next() == member || order_.step_due(member) || closed_.contains(member);
  });
  if (closed_.contains(member)) {
    order_.rest(member);
    lock.unlock();
    changed_.notify_all();
    return Entry::closed;
  }
  if (order_.step_due(member)) {
    order_.withdraw(member);
    return Entry::step_due;
  }
  order_.enter(member);
  return Entry::granted;
}

void StepGate::exit(Member member, double seconds) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    order_.exit(member, seconds);
  }
  changed_.notify_all();
}

void StepGate::rest(Member member) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    order_.rest(member);
  }
  changed_.notify_all();
}

void StepGate::close(Member member) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    closed_.insert(member);
  }
  changed_.notify_all();
}

}  // namespace drafthouse
