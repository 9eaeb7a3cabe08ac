#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "drafthouse/host.h"

namespace drafthouse::cli {

// What a host has to say, on standard error: warnings and errors. Lines wait until it is opened, so
// that a load that fails is told once, by its status. Thread-safe; outlives the host.
class HostLog {
 public:
  // For HostOptions::log.
  LogFn callback();
  // From now on lines come out; those that wait do first.
  void open();

 private:
  void take(LogLevel level, std::string_view line);

  std::mutex lock_;
  bool open_ = false;
  std::vector<std::string> waiting_;
};

}  // namespace drafthouse::cli
