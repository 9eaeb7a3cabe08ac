#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace drafthouse {

// Units of work in one line, cut into a stretch per thread. A thread takes units from the front of
// its own stretch, a few at a time, so that what it reads is one stream; when it has none left it
// takes over the later half of the longest stretch of another. No unit is given out twice.
//
// reset() must not run beside take(); take() may run on any threads, each with a stretch of its
// own.
class WorkRanges {
 public:
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    bool empty() const { return begin == end; }
  };

  explicit WorkRanges(unsigned stretches) : stretches_(stretches) {}

  unsigned stretches() const { return static_cast<unsigned>(stretches_.size()); }
  void reset(std::uint32_t units);
  // The next at most `most` units of stretch `own`, fewer near its end; empty: nothing is left.
  Range take(unsigned own, std::uint32_t most);

 private:
  struct alignas(64) Stretch {
    std::atomic<std::uint64_t> bounds{0};  // begin << 32 | end
  };

  Range take_own(Stretch& own, std::uint32_t most);
  bool take_over(Stretch& own);

  std::vector<Stretch> stretches_;
};

}  // namespace drafthouse
