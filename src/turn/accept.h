#pragma once

#include <cassert>
#include <cstdint>
#include <span>

namespace drafthouse {

struct Verdict {
  std::uint32_t accepted;  // how many proposals stand
  std::uint32_t next;      // the target's own id after them; always known
};

// Greedy acceptance. chosen[i] is the target's choice after it has read proposals 0 … i−1, so it has
// one element more than `proposals`. Pure: the caller commits, streams and counts.
inline Verdict accept_greedy(std::span<const std::uint32_t> proposals,
                             std::span<const std::uint32_t> chosen) {
  assert(chosen.size() == proposals.size() + 1);
  std::uint32_t n = 0;
  while (n < proposals.size() && proposals[n] == chosen[n]) ++n;
  return Verdict{n, chosen[n]};
}

}  // namespace drafthouse
