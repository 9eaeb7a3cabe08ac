#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "cache/disk/disk_options.h"

namespace drafthouse {

// Counters of a section, added to its directory's too. Thread-safe.
class DiskMeter {
 public:
  explicit DiskMeter(DiskMeter* above = nullptr) : above_(above) {}

  void add(std::uint64_t DiskCounters::* counter, std::uint64_t count = 1) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      counters_.*counter += count;
    }
    if (above_ != nullptr) above_->add(counter, count);
  }
  DiskCounters read() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counters_;
  }

 private:
  DiskMeter* above_;
  mutable std::mutex mutex_;
  DiskCounters counters_;
};

// Log lines that are said once for each cause, until the cause has gone. Thread-safe.
class DiskLog {
 public:
  explicit DiskLog(DiskLogFn log) : log_(std::move(log)) {}

  void say(const std::string& line) const {
    if (log_) log_(line);
  }
  void say_once(const std::string& cause, const std::string& line) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!said_.insert(cause).second) return;
    }
    say(line);
  }
  // Says so, and returns true, if the cause had been said.
  bool recovered(const std::string& cause, const std::string& line) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (said_.erase(cause) == 0) return false;
    }
    say(line);
    return true;
  }

 private:
  DiskLogFn log_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace drafthouse
