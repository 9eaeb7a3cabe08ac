#include "turn/width_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

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
// How far one turn may move what is believed of the machine and the context, the first turn
// further: a long context costs a small model several times what the table says of an empty one.
constexpr double kDriftStep = 4.0;
constexpr double kDriftFirst = 64.0;

}  // namespace

CostTable::CostTable(std::vector<Point> verify, std::vector<Point> draft, std::vector<Point> blocks)
    : verify_(std::move(verify)), draft_(std::move(draft)), blocks_(std::move(blocks)) {
  assert(!verify_.empty());
  for (std::vector<Point>* points : {&verify_, &draft_, &blocks_}) {
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
  if (i == points.size()) {
    const Point& last = points.back();
    if (points.size() == 1) return last.seconds * rows / last.rows;
    // The steeper of the whole and of the end: passes get dearer by the row once they are not bound
    // by reading weights any more. They never cost more by the row than the last one measured.
    const Point& near = points[points.size() - 2];
    const Point& first = points.front();
    const double slope = std::max((last.seconds - near.seconds) / (last.rows - near.rows),
                                  (last.seconds - first.seconds) / (last.rows - first.rows));
    return std::min(last.seconds * rows / last.rows, last.seconds + slope * (rows - last.rows));
  }
  const double part = static_cast<double>(rows - points[i - 1].rows) /
                      static_cast<double>(points[i].rows - points[i - 1].rows);
  return points[i - 1].seconds + part * (points[i].seconds - points[i - 1].seconds);
}

double CostTable::turn(const BatchShape& shape) const {
  double seconds = verify(shape.rows);
  if (shape.drafting == 0) return seconds;
  // The draft's pass for one sequence of the mean width, times what more sequences cost.
  const std::uint32_t width = 1 + (shape.proposals() + shape.drafting - 1) / shape.drafting;
  const double scale =
      blocks_.empty() ? shape.drafting : at(blocks_, shape.drafting) / blocks_.front().seconds;
  seconds += scale * at(draft_, width);
  return seconds;
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

void SurvivalCurve::expected_survival(std::span<double> out) const {
  const double overall =
      (overall_.hits + kPriorTries * kPriorRate) / (overall_.tries + kPriorTries);
  double survives = 1.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    survives *= (places_[i].hits + kPlaceTries * overall) / (places_[i].tries + kPlaceTries);
    out[i] = survives;
  }
}

double SurvivalCurve::expected_gain(std::uint32_t width) const {
  std::array<double, kBlockRowsMax> survival;
  const std::size_t places = std::min(width, kBlockRowsMax) - 1;
  expected_survival({survival.data(), places});
  return std::accumulate(survival.begin(), survival.begin() + static_cast<std::ptrdiff_t>(places),
                         1.0);
}

WidthPolicy::WidthPolicy(const CostTable& costs, std::uint32_t block_size)
    : costs_(costs), block_size_(std::min(block_size, kBlockRowsMax)) {}

double WidthPolicy::cost(std::uint32_t width) const { return costs_.turn(width) / costs_.turn(1); }

double WidthPolicy::allowance() const {
  return balance_ + kAllowanceSteps + kAllowancePerId * static_cast<double>(ids_);
}

std::uint32_t WidthPolicy::choose(std::uint32_t room) const {
  if (!costs_.has_draft()) return 1;
  std::uint32_t best = 1;
  double best_rate = kMargin;  // of plain decoding, in ids per plain step
  for (std::uint32_t width = 2; width <= std::min(block_size_, room); ++width) {
    // Even a turn that gains one id only must stay inside the allowance.
    if (cost(width) - 1.0 > allowance()) break;
    const double rate = survival_.expected_gain(width) / cost(width);
    if (rate > best_rate) {
      best_rate = rate;
      best = width;
    }
  }
  return best;
}

void WidthPolicy::observe(std::uint32_t width, std::uint32_t gained, double seconds,
                          const BatchShape& shape) {
  ++chosen_[std::min(width, kBlockRowsMax)];
  ids_ += gained;
  const double expected = costs_.turn(shape);
  const double far = turns_ == 0 ? kDriftFirst : kDriftStep;
  const double weight = std::max(kDriftWeight, 1.0 / static_cast<double>(++turns_));
  drift_ += weight * (std::clamp(seconds / expected, drift_ / far, drift_ * far) - drift_);
  seconds_ += seconds;
  steps_ += expected / costs_.verify(shape.sequences);
  if (width <= 1) return;
  survival_.observe(width - 1, gained - 1);
  // What the batch took past its plain step is paid, in ids that plain steps would have given it
  // meanwhile, by those that asked for it.
  const double extra = seconds / (drift_ * costs_.verify(shape.sequences)) - 1.0;
  const double share = static_cast<double>(width - 1) / shape.proposals();
  balance_ += (gained - 1.0) - extra * shape.sequences * share;
}

std::string WidthPolicy::explain() const {
  std::string widths;
  for (std::uint32_t width = 1; width <= kBlockRowsMax; ++width) {
    if (chosen_[width] == 0) continue;
    widths += fmt::format("{}{}×{}", widths.empty() ? "" : ", ", width, chosen_[width]);
  }
  if (turns_ == 0) return "no turn was needed";
  const std::uint32_t middle = std::max(2u, block_size_ / 2);
  std::string line = fmt::format(
      "widths {} (width×turns); a turn costs {:.2f} plain steps at width {}, {:.2f} at {}", widths,
      cost(middle), middle, cost(block_size_), block_size_);
  if (chosen_[1] == turns_) line += "; speculation would not have paid here";
  return line;
}

WidthChooser::WidthChooser(const CostTable& costs, std::uint32_t block_size)
    : costs_(costs), block_size_(std::min(block_size, kBlockRowsMax)) {}

bool WidthChooser::affordable(std::size_t count, double seconds) const {
  const double plain = costs_.turn(base_);
  const double extra = base_.sequences * (seconds / plain - 1.0);
  std::uint32_t proposals = 0;
  for (std::size_t i = 0; i < count; ++i) proposals += candidates_[i].width - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(candidates_[i].width - 1) / proposals;
    if (extra * share > candidates_[i].allowance) return false;
  }
  return true;
}

void WidthChooser::plan(std::size_t count) {
  BatchShape shape = base_;
  double gain = base_gain_;
  for (std::size_t i = 0; i < count; ++i) candidates_[i].width = 1;
  for (;;) {
    // The proposal most likely to be accepted comes next; of each sequence they come in order.
    Candidate* next = nullptr;
    double survives = 0;
    for (std::size_t i = 0; i < count; ++i) {
      Candidate& candidate = candidates_[i];
      if (candidate.width == candidate.most) continue;
      const double chance = survival_[candidate.survival + candidate.width - 1];
      if (next != nullptr && chance <= survives) continue;
      next = &candidate;
      survives = chance;
    }
    if (next == nullptr) return;
    if (++next->width == 2) ++shape.drafting;
    ++shape.rows;
    gain += survives;
    const double seconds = costs_.turn(shape);
    if (gain / seconds <= best_rate_ || !affordable(count, seconds)) continue;
    best_rate_ = gain / seconds;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      candidates_[i].choice->width = i < count ? candidates_[i].width : 1;
    }
  }
}

void WidthChooser::choose(std::span<WidthChoice> choices) {
  if (choices.size() == 1 && choices[0].policy != nullptr) {
    choices[0].width = choices[0].policy->choose(choices[0].room);
    return;
  }
  candidates_.clear();
  survival_.clear();
  base_ = {.sequences = static_cast<std::uint32_t>(choices.size()), .rows = 0, .drafting = 0};
  base_gain_ = static_cast<double>(choices.size());
  for (WidthChoice& choice : choices) {
    if (choice.policy != nullptr) choice.width = 1;
    base_.rows += choice.width;
    if (choice.width > 1) ++base_.drafting;
    const std::uint32_t most = std::min(block_size_, choice.room);
    if (choice.policy == nullptr || most < 2) continue;
    const std::size_t first = survival_.size();
    survival_.resize(first + most - 1);
    const std::span<double> places(survival_.data() + first, most - 1);
    choice.policy->survival_.expected_survival(places);
    candidates_.push_back({.choice = &choice,
                           .allowance = choice.policy->allowance(),
                           .gain = std::accumulate(places.begin(), places.end(), 0.0),
                           .most = most,
                           .width = 1,
                           .survival = first});
  }
  if (candidates_.empty() || !costs_.has_draft()) return;
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
  // A sequence more in the draft's pass has a price of its own, so the best few may beat them all.
  best_rate_ = kMargin * base_gain_ / costs_.turn(base_);
  for (std::size_t count = 1; count <= candidates_.size(); ++count) plan(count);
}

}  // namespace drafthouse
