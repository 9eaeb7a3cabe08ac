// Convolutions over the rows of a draft's block. The work is small, so it is plain C++, the same on
// every instruction set.

#include <algorithm>

#include "device/cpu_device.h"

namespace drafthouse {

void CpuDevice::block_convolution(const StepTable& step, const BlockConvolutionJob& job) {
  const std::uint32_t channels = job.width / job.groups;
  // A group of one span is a task; its rows are worked off from the last, so that earlier rows are
  // still as they were.
  const auto spans = static_cast<std::uint32_t>(step.spans.size());
  const std::size_t items = std::size_t{step.rows} * job.width * job.kernel;
  for_chunks(spans * job.groups, items, [&](unsigned, std::uint32_t chunk) {
    const StepSpan& span = step.spans[chunk / job.groups];
    const std::uint32_t group = chunk % job.groups;
    const std::uint32_t begin = group * channels;
    for (std::uint32_t row = span.rows; row-- > 0;) {
      const std::size_t at = span.first_row + row;
      const float* dynamic = job.dynamic + at * job.dynamic_stride + group;
      const std::uint32_t taps = std::min(job.kernel, row + 1);
      for (std::uint32_t c = begin; c < begin + channels; ++c) {
        float sum = 0;
        for (std::uint32_t t = 0; t < taps; ++t) {
          const float weight = job.base[std::size_t{t} * job.width + c] + dynamic[t * job.groups];
          sum += weight * job.inout[(at - t) * job.width + c];
        }
        job.inout[at * job.width + c] = sum;
      }
    }
  });
}

}  // namespace drafthouse
