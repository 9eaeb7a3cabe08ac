#pragma once

#include <cstdint>

namespace drafthouse {

// What a random number is for. Numbers of different purposes are independent.
enum class Purpose : std::uint32_t {
  group = 1,  // the race between groups of ids
  id = 2,     // the race between the ids of a group
  xtc = 3,    // whether XTC acts
};

// ln(x), x > 0 and finite; the same bits on every machine, within 2 units in the last place.
double natural_log(double x);

// The random numbers of one answer: pure functions of (seed, choice, position, purpose, index).
class Noise {
 public:
  Noise(std::uint64_t seed, std::uint32_t choice) : seed_(seed), choice_(choice) {}

  // In (0, 1), of 52 bits; never 0 or 1.
  double uniform(std::uint32_t position, Purpose purpose, std::uint32_t index) const;
  // Exponential of mean 1: −ln of the above.
  double exponential(std::uint32_t position, Purpose purpose, std::uint32_t index) const {
    return -natural_log(uniform(position, purpose, index));
  }

 private:
  std::uint64_t seed_;
  std::uint32_t choice_;
};

}  // namespace drafthouse
