#pragma once

#include <cstdint>

namespace drafthouse {

// Below this the figures of a bench say more about the neighbours than about the machine.
constexpr double kQuietCpuShare = 0.7;

// How much of the time that its threads could have had a process got: its CPU time ÷ (wall time ×
// threads), 1 at most. `cpu_s` and `wall_s` in seconds over the same span. 1 where nothing was
// measured.
constexpr double cpu_share(double cpu_s, double wall_s, std::uint32_t threads) {
  const double possible = wall_s * threads;
  if (possible <= 0 || cpu_s >= possible) return 1;
  return cpu_s / possible;
}

constexpr bool is_busy(double share) { return share < kQuietCpuShare; }

}  // namespace drafthouse
