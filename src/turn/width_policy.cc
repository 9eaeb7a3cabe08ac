#include "turn/width_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace drafthouse {
namespace {

// What an unknown draft is believed to do before it has shown anything, and how many tries that
// belief is worth.
constexpr double kPriorRate = 0.7;
constexpr double kPriorTries = 2.0;
// How many tries the overall rate is worth at each place.
constexpr double kPlaceTries = 3.0;
// A turn's weight halves after about seven turns.
constexpr double kMemory = 0.9;
// Plain steps that speculation may be behind, at the start and per id produced.
constexpr double kAllowanceSteps = 0.9;
constexpr double kAllowancePerId = 0.01;
// Speculation must promise this much more than plain decoding to be chosen.
constexpr double kMargin = 1.02;
constexpr double kDriftWeight = 0.1;

}  // namespace

CostTable::CostTable(std::vector<Point> verify, std::vector<Point> draft)
    : verify_(std::move(verify)), draft_(std::move(draft)) {
  assert(!verify_.empty());
  for (std::vector<Point>* points : {&verify_, &draft_}) {
    for (std::size_t i = 1; i < points->size(); ++i) {
      (*points)[i].seconds = std::max((*points)[i].seconds, (*points)[i - 1].seconds);
    }
  }
}

double CostTable::at(const std::vector<Point>& points, std::uint32_t rows) {
  if (points.empty()) return 0.0;
  std::size_t i = 0;
  while (i < points.size() && points[i].rows < rows) ++i;
  if (i == 0) return points.front().seconds;
  if (i == points.size()) return points.back().seconds * rows / points.back().rows;
  const double part = static_cast<double>(rows - points[i - 1].rows) /
                      static_cast<double>(points[i].rows - points[i - 1].rows);
  return points[i - 1].seconds + part * (points[i].seconds - points[i - 1].seconds);
}

void SurvivalCurve::observe(std::uint32_t proposed, std::uint32_t accepted) {
  overall_.tries *= kMemory;
  overall_.hits *= kMemory;
  for (std::uint32_t i = 0; i < proposed && i <= accepted && i < kBlockRowsMax; ++i) {
    const double hit = i < accepted ? 1.0 : 0.0;
    places_[i].tries = places_[i].tries * kMemory + 1.0;
    places_[i].hits = places_[i].hits * kMemory + hit;
    overall_.tries += 1.0;
    overall_.hits += hit;
  }
}

double SurvivalCurve::expected_gain(std::uint32_t width) const {
  const double overall =
      (overall_.hits + kPriorTries * kPriorRate) / (overall_.tries + kPriorTries);
  double gain = 1.0;
  double survives = 1.0;
  for (std::uint32_t i = 0; i + 1 < width && i < kBlockRowsMax; ++i) {
    survives *= (places_[i].hits + kPlaceTries * overall) / (places_[i].tries + kPlaceTries);
    gain += survives;
  }
  return gain;
}

WidthPolicy::WidthPolicy(const CostTable& costs, std::uint32_t block_size)
    : costs_(costs), block_size_(std::min(block_size, kBlockRowsMax)) {}

double WidthPolicy::cost(std::uint32_t width) const { return costs_.turn(width) / costs_.turn(1); }

std::uint32_t WidthPolicy::choose(std::uint32_t room) const {
  if (!costs_.has_draft()) return 1;
  const double allowance = kAllowanceSteps + kAllowancePerId * static_cast<double>(ids_);
  std::uint32_t best = 1;
  double best_rate = kMargin;  // of plain decoding, in ids per plain step
  for (std::uint32_t width = 2; width <= std::min(block_size_, room); ++width) {
    // Even a turn that gains one id only must stay inside the allowance.
    if (cost(width) - 1.0 > balance_ + allowance) break;
    const double rate = survival_.expected_gain(width) / cost(width);
    if (rate > best_rate) {
      best_rate = rate;
      best = width;
    }
  }
  return best;
}

void WidthPolicy::observe(std::uint32_t width, std::uint32_t gained, double seconds) {
  ++chosen_[std::min(width, kBlockRowsMax)];
  ids_ += gained;
  const double expected = costs_.turn(width);
  drift_ += kDriftWeight * (std::clamp(seconds / expected, 0.25, 4.0) - drift_);
  if (width <= 1) return;
  survival_.observe(width - 1, gained - 1);
  balance_ += gained - seconds / (drift_ * costs_.turn(1));
}

std::string WidthPolicy::explain() const {
  std::string widths;
  std::uint64_t turns = 0;
  for (std::uint32_t width = 1; width <= kBlockRowsMax; ++width) {
    if (chosen_[width] == 0) continue;
    turns += chosen_[width];
    widths += fmt::format("{}{}×{}", widths.empty() ? "" : ", ", width, chosen_[width]);
  }
  if (turns == 0) return "no turn was needed";
  const std::uint32_t middle = std::max(2u, block_size_ / 2);
  std::string line =
      fmt::format("widths {} (width×turns); a turn costs {:.2f} plain steps at width {}, {:.2f} at {}",
                  widths, cost(middle), middle, cost(block_size_), block_size_);
  if (chosen_[1] == turns) {
    line += "; speculation would not have paid here";
  } else {
    line += fmt::format("; {} {:.1f} plain steps", balance_ >= 0 ? "saved" : "lost",
                        balance_ >= 0 ? balance_ : -balance_);
  }
  return line;
}

}  // namespace drafthouse
