#include "engine/bench_floor.h"

#include <algorithm>

#include "engine/probe.h"

namespace drafthouse {

MachinePeaks measure_peaks(ThreadPool& pool, const Kernels& kernels) {
  MachinePeaks peaks{.float_gops = peak_float_gops(pool, kernels),
                     .fp32_gops = 0,
                     .int8_gops = peak_int8_gops(pool, kernels)};
  peaks.fp32_gops = peaks.float_gops;
  for (const Isa isa : built_isas()) {
    // The only set whose float loop is not fp32; its fp32 products are those of the set below.
    if (isa != Isa::avx512bf16 || &kernels != &kernels_for(isa)) continue;
    peaks.fp32_gops = peak_float_gops(pool, kernels_for(Isa::avx512));
  }
  return peaks;
}

MachinePeaks better_of(const MachinePeaks& a, const MachinePeaks& b) {
  return {.float_gops = std::max(a.float_gops, b.float_gops),
          .fp32_gops = std::max(a.fp32_gops, b.fp32_gops),
          .int8_gops = std::max(a.int8_gops, b.int8_gops)};
}

PassFloor::PassFloor(const Decoder& target, const MachinePeaks& peaks) {
  const bool fp32 = target.compute_fp32();
  for (const DecoderLayer& layer : target.layers()) {
    const auto each = [&](const PackedMatrix& matrix) { add(layers_, matrix, fp32, peaks); };
    layer.each_matrix(each);
    layer.each_expert_matrix(target.config().experts.per_row, each);
  }
  add(head_, target.head(), fp32, peaks);
}

void PassFloor::add(Part& part, const PackedMatrix& matrix, bool fp32, const MachinePeaks& peaks) {
  double gops = peaks.fp32_gops;
  switch (act_kind_for(matrix.kind, fp32)) {
    case ActKind::f32: break;
    case ActKind::bf16: gops = peaks.float_gops; break;
    case ActKind::int8: gops = peaks.int8_gops; break;
  }
  const double operations = 2.0 * matrix.outputs * matrix.inputs;
  part.operations += operations;
  part.seconds += operations / (gops * 1e9);
}

double PassFloor::operations(std::uint32_t rows, std::uint32_t head_rows) const {
  return rows * layers_.operations + head_rows * head_.operations;
}

double PassFloor::seconds(std::uint32_t rows, std::uint32_t head_rows) const {
  return rows * layers_.seconds + head_rows * head_.seconds;
}

}  // namespace drafthouse
