#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace drafthouse {

// Slows the writer while requests run, so that it takes a fifth of its time at most; it never
// stops. Thread-safe.
class WritePace {
 public:
  void begin_request() { change(requests_, 1); }
  void end_request() { change(requests_, -1); }
  // Full speed whatever runs: somebody waits for the writer.
  void begin_hurry() { change(hurries_, 1); }
  void end_hurry() { change(hurries_, -1); }
  // Ends all pauses for good.
  void stop() { change(stops_, 1); }
  bool stopped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stops_ > 0;
  }

  // After a piece of work that took so long.
  void pause_after(std::chrono::nanoseconds work) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto pause = std::min<std::chrono::nanoseconds>(work * kPauseFactor, kPauseMax);
    changed_.wait_for(lock, pause, [this] { return requests_ <= 0 || hurries_ > 0 || stops_ > 0; });
  }

 private:
  static constexpr int kPauseFactor = 4;
  static constexpr std::chrono::milliseconds kPauseMax{200};

  void change(int& count, int by) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      count += by;
    }
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int requests_ = 0;
  int hurries_ = 0;
  int stops_ = 0;
};

}  // namespace drafthouse
