#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/units.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

// A bar that flashes up for a moment is worse than none.
constexpr std::chrono::milliseconds kQuiet{300};
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kCells = 30;

}  // namespace

ProgressBar::ProgressBar() : next_(Clock::now() + kQuiet), terminal_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

ProgressFn ProgressBar::callback() {
  if (!terminal_) return nullptr;
  return [this](std::uint64_t done, std::uint64_t total) { show(done, total); };
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (now < next_ || total == 0) return;
  next_ = now + kRedraw;
  drawn_ = true;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto full = static_cast<std::size_t>(share * static_cast<double>(kCells));
  fmt::print(stderr, "\rloading [{}{}] {:3.0f} % of {}\x1b[K", std::string(full, '#'),
             std::string(kCells - full, '.'), share * 100, human_bytes(total));
}

StageLine::StageLine() : terminal_(stderr_is_terminal()) {}

StageLine::~StageLine() {
  if (drawn_) fmt::print(stderr, "\r\x1b[K");
}

void StageLine::show(std::string_view what) {
  if (!terminal_) return;
  drawn_ = true;
  fmt::print(stderr, "\r{}\x1b[K", what);
  std::fflush(stderr);
}

}  // namespace drafthouse::cli
