#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "drafthouse/engine.h"

namespace drafthouse::cli {

// A bar on standard error while a model loads. Nothing is drawn when that is no terminal, or when
// loading is quick; what was drawn is wiped on destruction. Confined to one thread.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // For EngineOptions::progress; must not outlive this.
  ProgressFn callback();

 private:
  using Clock = std::chrono::steady_clock;

  void show(std::uint64_t done, std::uint64_t total);

  Clock::time_point next_;
  bool terminal_;
  bool drawn_ = false;
};

// One line on standard error that says what is being done. Nothing is drawn when that is no
// terminal; what was drawn is wiped on destruction. Confined to one thread.
class StageLine {
 public:
  StageLine();
  ~StageLine();
  StageLine(const StageLine&) = delete;
  StageLine& operator=(const StageLine&) = delete;

  void show(std::string_view what);

 private:
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace drafthouse::cli
