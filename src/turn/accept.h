#pragma once

#include <cassert>
#include <cstdint>
#include <span>

namespace drafthouse {

struct Verdict {
  std::uint32_t accepted;  // how many proposals stand
  std::uint32_t next;      // the target's own id after them; always known
};

// Acceptance row by row, for targets whose choices are made one after the other: stops at the first
// that is not what was proposed.
class Acceptance {
 public:
  explicit Acceptance(std::span<const std::uint32_t> proposals) : proposals_(proposals) {}

  // Whether another choice is wanted.
  bool open() const { return open_; }
  // The target's choice after the proposals accepted so far. True: it was proposed, and stands.
  bool take(std::uint32_t chosen) {
    assert(open_);
    verdict_.next = chosen;
    open_ = verdict_.accepted < proposals_.size() && proposals_[verdict_.accepted] == chosen;
    if (open_) ++verdict_.accepted;
    return open_;
  }
  // Once it is not open any more.
  const Verdict& verdict() const { return verdict_; }

 private:
  std::span<const std::uint32_t> proposals_;
  Verdict verdict_{0, 0};
  bool open_ = true;
};

// Greedy acceptance. chosen[i] is the target's choice after it has read proposals 0 … i−1, so it
// has one element more than `proposals`. Pure: the caller commits, streams and counts.
inline Verdict accept_greedy(std::span<const std::uint32_t> proposals,
                             std::span<const std::uint32_t> chosen) {
  assert(chosen.size() == proposals.size() + 1);
  std::uint32_t n = 0;
  while (n < proposals.size() && proposals[n] == chosen[n]) ++n;
  return Verdict{n, chosen[n]};
}

}  // namespace drafthouse
