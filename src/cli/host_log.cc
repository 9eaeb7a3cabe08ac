#include "cli/host_log.h"

#include "cli/output.h"

namespace drafthouse::cli {

LogFn HostLog::callback() {
  return [this](LogLevel level, std::string_view line) { take(level, line); };
}

void HostLog::take(LogLevel level, std::string_view line) {
  if (level == LogLevel::info) return;
  const std::lock_guard<std::mutex> lock(lock_);
  if (open_) return say(line);
  waiting_.emplace_back(line);
}

void HostLog::open() {
  const std::lock_guard<std::mutex> lock(lock_);
  open_ = true;
  for (const std::string& line : waiting_) say(line);
  waiting_.clear();
}

}  // namespace drafthouse::cli
