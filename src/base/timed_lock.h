#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace drafthouse {

// A lock that can be waited for with a limit, as std::timed_mutex; its waits are such that
// ThreadSanitizer (GCC 12) understands them. Works with std::unique_lock.
class TimedLock {
 public:
  void lock() {
    std::unique_lock<std::mutex> here(mutex_);
    freed_.wait(here, [this] { return !held_; });
    held_ = true;
  }
  bool try_lock() {
    const std::lock_guard<std::mutex> here(mutex_);
    if (held_) return false;
    return held_ = true;
  }
  bool try_lock_for(std::chrono::duration<double> wait) {
    std::unique_lock<std::mutex> here(mutex_);
    if (!freed_.wait_for(here, wait, [this] { return !held_; })) return false;
    return held_ = true;
  }
  void unlock() {
    {
      const std::lock_guard<std::mutex> here(mutex_);
      held_ = false;
    }
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool held_ = false;
};

}  // namespace drafthouse
