#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/scheduler.h"
#include "engine/step_gate.h"

namespace drafthouse {

// The thread of one loaded pair: owns its sequences, takes requests from other threads and runs
// them through its scheduler, one step or chunk at a time, whenever the device's gate lets it.
class EngineThread {
 public:
  // `gate` must outlive it. `parts.wake` is set here.
  EngineThread(SchedulerParts parts, SchedulerLimits limits, StepGate& gate, double weight);
  // Ends what still runs as `closed`.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Thread-safe. invalid_argument, context_overflow, busy, or `closed` after stop(): then the
  // task's events hear nothing.
  Status submit(std::shared_ptr<Task> task);
  // Thread-safe, idempotent. The task ends within a layer of work; its ended() still comes.
  void cancel(Task& task);
  // Thread-safe: a paused task's events may be ready again.
  void nudge() { wake(); }
  // Thread-safe. Ends all tasks with this status, refuses new ones and waits for the thread.
  void stop(const Status& status);

  // Tasks that have not ended. Thread-safe.
  std::size_t tasks() const { return tasks_.load(std::memory_order_acquire); }
  std::size_t running() const { return running_.load(std::memory_order_relaxed); }
  SchedulerCounters counters() const;

 private:
  class Counted;
  // What wakes the thread. Work in the background may ring it when the engine has gone.
  struct Bell {
    std::mutex lock;
    std::condition_variable rung;
    bool awake = false;
    void ring();
  };

  void loop();
  void wake() { bell_->ring(); }
  // One step or chunk, when the gate lets it.
  void work(Scheduler::Work work);
  void note_figures();
  void take_inbox(std::vector<std::shared_ptr<Task>>& inbox);

  std::shared_ptr<Bell> bell_;
  Scheduler scheduler_;
  SchedulerLimits limits_;
  const Clock& clock_;
  StepGate& gate_;
  StepGate::Member member_;

  // What follows is guarded by the bell's lock.
  std::vector<std::shared_ptr<Task>> inbox_;
  bool stopping_ = false;
  Status stop_status_;
  SchedulerCounters counters_;  // as of the last step

  std::atomic<std::size_t> tasks_{0};
  std::atomic<std::size_t> running_{0};
  std::mutex stop_lock_;
  std::thread thread_;
};

}  // namespace drafthouse
