#include "engine/engine_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <utility>

namespace drafthouse {
namespace {

// Waiting without a deadline still looks up now and then, for clocks that are not the machine's.
constexpr double kWaitMax = 1.0;

}  // namespace

// Passes events on and counts the task until its end.
class EngineThread::Counted final : public TaskEvents {
 public:
  Counted(std::shared_ptr<TaskEvents> events, EngineThread& owner)
      : events_(std::move(events)), owner_(owner) {}

  void started(const CacheReport& cache) override { events_->started(cache); }
  void tokens(const AnswerPiece& piece, std::span<const std::uint32_t> ids,
              std::uint32_t choice) override {
    events_->tokens(piece, ids, choice);
  }
  bool ready() override { return events_->ready(); }
  void ended(const Status& status, GenerateResult result) override {
    // Before it is told: whoever hears of the end may look at the figures.
    owner_.note_figures();
    owner_.tasks_.fetch_sub(1, std::memory_order_release);
    events_->ended(status, std::move(result));
  }

 private:
  std::shared_ptr<TaskEvents> events_;
  EngineThread& owner_;
};

namespace {

SchedulerParts with_wake(SchedulerParts parts, std::function<void()> wake) {
  parts.wake = std::move(wake);
  return parts;
}

// The engine counts those that wait itself, before it takes them.
SchedulerLimits unbounded(SchedulerLimits limits) {
  limits.queue = std::numeric_limits<std::uint32_t>::max();
  return limits;
}

}  // namespace

void EngineThread::Bell::ring() {
  {
    const std::lock_guard<std::mutex> guard(lock);
    awake = true;
  }
  rung.notify_one();
}

EngineThread::EngineThread(SchedulerParts parts, SchedulerLimits limits, StepGate& gate,
                           double weight)
    : bell_(std::make_shared<Bell>()),
      scheduler_(with_wake(std::move(parts), [bell = bell_] { bell->ring(); }), unbounded(limits)),
      limits_(limits),
      clock_(scheduler_.clock()),
      gate_(gate),
      member_(gate.join(weight)) {
  thread_ = std::thread([this] { loop(); });
}

EngineThread::~EngineThread() {
  stop(Status(Code::closed, "the engine has gone"));
  gate_.leave(member_);
}

Status EngineThread::submit(std::shared_ptr<Task> task) {
  if (Status s = scheduler_.prepare(*task); !s.ok()) return s;
  {
    const std::lock_guard<std::mutex> lock(bell_->lock);
    if (stopping_) return Status(Code::closed, "the model is being unloaded");
    // Those that run have left the queue.
    const std::size_t all = tasks();
    const std::size_t waiting = all - std::min(all, running_.load(std::memory_order_relaxed));
    if (waiting >= limits_.queue) {
      return Status(Code::busy, fmt::format("{} requests wait already; try again later", waiting));
    }
    task->events = std::make_shared<Counted>(std::move(task->events), *this);
    tasks_.fetch_add(1, std::memory_order_relaxed);
    inbox_.push_back(std::move(task));
    bell_->awake = true;
  }
  bell_->rung.notify_one();
  return {};
}

void EngineThread::cancel(Task& task) {
  task.cancelled.store(true, std::memory_order_release);
  scheduler_.interrupt().store(true, std::memory_order_release);
  wake();
}

void EngineThread::stop(const Status& status) {
  const std::lock_guard<std::mutex> one(stop_lock_);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(bell_->lock);
    stopping_ = true;
    stop_status_ = status;
  }
  // Once it has been closed no pass begins, and the one that runs sees the flag.
  gate_.close(member_);
  scheduler_.interrupt().store(true, std::memory_order_release);
  wake();
  thread_.join();
}

SchedulerCounters EngineThread::counters() const {
  const std::lock_guard<std::mutex> lock(bell_->lock);
  return counters_;
}

void EngineThread::note_figures() {
  running_.store(scheduler_.running(), std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(bell_->lock);
  counters_ = scheduler_.counters();
}

void EngineThread::take_inbox(std::vector<std::shared_ptr<Task>>& inbox) {
  for (std::shared_ptr<Task>& task : inbox) {
    const std::shared_ptr<TaskEvents> events = task->events;
    if (Status s = scheduler_.submit(std::move(task)); !s.ok()) events->ended(s, {});
  }
  inbox.clear();
}

void EngineThread::work(Scheduler::Work work) {
  const auto kind = [](Scheduler::Work of) {
    return of == Scheduler::Work::step ? StepGate::Kind::step : StepGate::Kind::chunk;
  };
  StepGate::Entry entry = gate_.enter(member_, kind(work));
  if (entry == StepGate::Entry::step_due) {
    work = Scheduler::Work::step;
    entry = gate_.enter(member_, kind(work));
  }
  if (entry == StepGate::Entry::closed) return;
  const auto start = std::chrono::steady_clock::now();
  scheduler_.run(work);
  // Before others may enter: a stream that has just begun waits for its first step.
  gate_.set_streaming(member_, scheduler_.streaming());
  gate_.exit(member_,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void EngineThread::loop() {
  std::vector<std::shared_ptr<Task>> inbox;
  while (true) {
    {
      const std::lock_guard<std::mutex> lock(bell_->lock);
      inbox.swap(inbox_);
      bell_->awake = false;
      if (stopping_) break;
    }
    take_inbox(inbox);
    const Scheduler::Work next = scheduler_.next();
    note_figures();
    gate_.set_streaming(member_, scheduler_.streaming());
    if (next != Scheduler::Work::none) {
      work(next);
      continue;
    }
    gate_.rest(member_);
    const double wait = std::min(kWaitMax, scheduler_.next_deadline() - clock_.now_s());
    std::unique_lock<std::mutex> lock(bell_->lock);
    bell_->rung.wait_for(lock, std::chrono::duration<double>(std::max(wait, 0.001)),
                         [this] { return bell_->awake || stopping_; });
  }
  gate_.set_streaming(member_, false);
  gate_.rest(member_);
  take_inbox(inbox);
  scheduler_.end_all(stop_status_);
  note_figures();
}

}  // namespace drafthouse
