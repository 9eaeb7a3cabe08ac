#include "model/block_convolution.h"

namespace drafthouse {

void BlockConvolution::declare(WeightLoader& loader, const std::string& name,
                               std::uint32_t hidden) {
  loader.vector_part(&base, name + "base_kernel", 2 * kernel * hidden,
                     {.shape = {2, kernel, hidden}});
  loader.matrix(&projection, name + "kernel_projection.weight", coefficients(), hidden);
}

BlockConvolutionJob BlockConvolution::job(const Scratch& scratch, std::uint32_t side,
                                          float* inout) const {
  const std::uint32_t hidden = projection.inputs;
  return {.kernel = kernel,
          .groups = groups,
          .width = hidden,
          .base = base + std::size_t{side} * kernel * hidden,
          .dynamic = scratch.coefficients.as<float>() + std::size_t{side} * kernel * groups,
          .dynamic_stride = coefficients(),
          .inout = inout};
}

void BlockConvolution::begin(Device& device, const StepTable& step, Scratch& scratch,
                             bool compute_fp32) const {
  float* normed = scratch.normed.as<float>();
  const LinearSegment segment[] = {{projection, 0}};
  device.linear(segment, compute_fp32, normed, projection.inputs, step.rows,
                scratch.coefficients.as<float>(), coefficients(), false);
  device.block_convolution(step, job(scratch, 0, normed));
}

void BlockConvolution::end(Device& device, const StepTable& step, const Scratch& scratch,
                           float* out) const {
  device.block_convolution(step, job(scratch, 1, out));
}

}  // namespace drafthouse
