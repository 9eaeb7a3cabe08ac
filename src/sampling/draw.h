#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "sampling/candidates.h"
#include "sampling/noise.h"

namespace drafthouse {

// The draw at a position: each id is chosen with a probability in proportion to its weight.
//
// It is a race: E / weight with E exponential of mean 1 is smallest for a contestant with
// probability weight ÷ Σ weights (the same as arg-max of logit ÷ T + Gumbel noise). Groups of
// kLogitGroup neighbouring ids race first, with the sums of their weights, then the ids of the
// winner: that is the same distribution with 1/64 of the random numbers. The noise depends on
// position and id alone, so two similar distributions (a target's and its draft's) mostly give the
// same id.

// The smallest E / weight; weights that are not positive take no part.
class Race {
 public:
  Race(const Noise& noise, std::uint32_t position, Purpose purpose)
      : noise_(noise), position_(position), purpose_(purpose) {}

  void enter(std::uint32_t index, double weight) {
    if (!(weight > 0)) return;
    const double time = noise_.exponential(position_, purpose_, index) / weight;
    if (won_ && !(time < best_)) return;
    won_ = true;
    best_ = time;
    winner_ = index;
  }
  // Requires that one took part.
  std::uint32_t winner() const { return winner_; }

 private:
  const Noise& noise_;
  std::uint32_t position_;
  Purpose purpose_;
  bool won_ = false;
  double best_ = 0;
  std::uint32_t winner_ = 0;
};

// The group that wins, by the sums of all groups.
inline std::uint32_t draw_group(const Noise& noise, std::uint32_t position,
                                std::span<const float> sums) {
  Race race(noise, position, Purpose::group);
  for (std::uint32_t g = 0; g < sums.size(); ++g) race.enter(g, static_cast<double>(sums[g]));
  return race.winner();
}

// The id that wins among those of a group, first_id being the id of the first weight.
inline std::uint32_t draw_id(const Noise& noise, std::uint32_t position, std::uint32_t first_id,
                             std::span<const float> weights) {
  Race race(noise, position, Purpose::id);
  for (std::uint32_t i = 0; i < weights.size(); ++i) {
    race.enter(first_id + i, static_cast<double>(weights[i]));
  }
  return race.winner();
}

// The same over what filters have left; puts `from` into the order of ids.
std::uint32_t draw_candidate(const Noise& noise, std::uint32_t position, std::span<Candidate> from);

}  // namespace drafthouse
