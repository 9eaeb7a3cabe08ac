#include "engine/bench_floor.h"

#include <algorithm>

namespace drafthouse {

MachinePeaks measure_peaks(ThreadPool& pool, const Kernels& kernels, int passes) {
  MachinePeaks peaks{.float_gops = peak_float_gops(pool, kernels, passes),
                     .fp32_gops = 0,
                     .int8_gops = peak_int8_gops(pool, kernels, passes)};
  peaks.fp32_gops = peaks.float_gops;
  for (const Isa isa : built_isas()) {
    // The only set whose float loop is not fp32; its fp32 products are those of the set below.
    if (isa != Isa::avx512bf16 || &kernels != &kernels_for(isa)) continue;
    peaks.fp32_gops = peak_float_gops(pool, kernels_for(Isa::avx512), passes);
  }
  return peaks;
}

MachinePeaks better_of(const MachinePeaks& a, const MachinePeaks& b) {
  return {.float_gops = std::max(a.float_gops, b.float_gops),
          .fp32_gops = std::max(a.fp32_gops, b.fp32_gops),
          .int8_gops = std::max(a.int8_gops, b.int8_gops)};
}

MachinePeaks mean_of(const MachinePeaks& a, const MachinePeaks& b) {
  return {.float_gops = (a.float_gops + b.float_gops) / 2,
          .fp32_gops = (a.fp32_gops + b.fp32_gops) / 2,
          .int8_gops = (a.int8_gops + b.int8_gops) / 2};
}

PassFloor::PassFloor(const Decoder& target, const MachinePeaks& peaks) {
  const bool fp32 = target.compute_fp32();
  for (const DecoderLayer& layer : target.layers()) {
    const auto each = [&](const PackedMatrix& matrix) {
      layers_s_ += seconds(matrix, fp32, peaks);
    };
    layer.each_matrix(each);
    layer.each_expert_matrix(target.config().experts.per_row, each);
  }
  head_s_ = seconds(target.head(), fp32, peaks);
}

double PassFloor::seconds(const PackedMatrix& matrix, bool fp32, const MachinePeaks& peaks) {
  double gops = peaks.fp32_gops;
  switch (act_kind_for(matrix.kind, fp32)) {
    case ActKind::f32: break;
    case ActKind::bf16: gops = peaks.float_gops; break;
    case ActKind::int8: gops = peaks.int8_gops; break;
  }
  return 2.0 * matrix.outputs * matrix.inputs / (gops * 1e9);
}

double PassFloor::seconds(std::uint32_t rows, std::uint32_t head_rows) const {
  return rows * layers_s_ + head_rows * head_s_;
}

}  // namespace drafthouse
