#pragma once

#include <algorithm>
#include <cstdint>

#include "device/device.h"

namespace drafthouse {

// How much of a sequence a draft keeps. Layers with a window of their own keep that, as they were
// trained, whatever is asked for; full layers keep keys and values of the first `sink` and the last
// `window` positions, in whole pages. What a draft proposes changes with it, what the target writes
// does not.
struct DraftContext {
  // One page that is not full, one that may be taken back, and something to see.
  static constexpr std::uint32_t kWindowMin = 4 * kPagePositions;

  std::uint32_t window = 0;  // 0: all positions
  std::uint32_t sink = 0;    // nothing without a window

  // What is kept when `window` and `sink` are asked for, with a draft whose sliding layers have a
  // window of `own` (0: it has none): its full layers keep no less than its sliding ones.
  static DraftContext of(std::uint32_t window, std::uint32_t sink, std::uint32_t own) {
    return {.window = window == 0 ? 0 : std::max(window, own), .sink = sink};
  }

  // Positions that a row sees back, itself included (0: all), in a layer with a window of its own
  // (0: none). Of a full layer never more pages are held than `window` has, so a row sees a little
  // less.
  std::uint32_t reach(std::uint32_t own) const {
    if (own != 0 || window == 0) return own;
    return whole_pages(window) - 2 * kPagePositions + 2;
  }
  // Positions at the beginning that a row sees besides. Layers with a window of their own were
  // trained without.
  std::uint32_t sink_of(std::uint32_t own) const {
    return own == 0 && window != 0 ? whole_pages(sink) : 0;
  }

 private:
  static std::uint32_t whole_pages(std::uint32_t positions) {
    return (positions + kPagePositions - 1) / kPagePositions * kPagePositions;
  }
};

}  // namespace drafthouse
