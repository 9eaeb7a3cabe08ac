#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "engine/probe.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "model/decoder.h"

namespace drafthouse {

// 10^9 operations per second of register-only loops, all threads.
struct MachinePeaks {
  double float_gops = 0;  // of the path's widest float instruction: bf16 where it has one
  double fp32_gops = 0;
  double int8_gops = 0;
};

// The best of `passes` of each loop.
MachinePeaks measure_peaks(ThreadPool& pool, const Kernels& kernels, int passes = kPeakPasses);
MachinePeaks better_of(const MachinePeaks& a, const MachinePeaks& b);
MachinePeaks mean_of(const MachinePeaks& a, const MachinePeaks& b);

// The least time that a target's matrix products can take, each held against the peak of the
// instruction that its inputs are multiplied with.
class PassFloor {
 public:
  PassFloor(const Decoder& target, const MachinePeaks& peaks);

  // For a pass of `rows` rows of which `head_rows` go through the head.
  double seconds(std::uint32_t rows, std::uint32_t head_rows) const;

 private:
  // Of one row.
  static double seconds(const PackedMatrix& matrix, bool fp32, const MachinePeaks& peaks);
  double layers_s_ = 0;
  double head_s_ = 0;
};

}  // namespace drafthouse
