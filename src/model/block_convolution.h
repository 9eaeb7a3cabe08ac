#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "model/scratch.h"
#include "model/weight_loader.h"

namespace drafthouse {

// A DFlash2 draft's convolution around a sublayer, over the rows of a block:
//
//   out[i][c] = Σt (base[side][t][c] + δ[i][side][t][group of c]) · in[i − t][c],   in[< 0] = 0
//
// once over the sublayer's input (side 0) and once over its output (side 1), with δ of both sides
// projected from the input as it was. Channels of a group lie side by side.
struct BlockConvolution {
  std::uint32_t kernel = 0;  // rows that a row sees, its own included; 0: there is none
  std::uint32_t groups = 0;
  const float* base = nullptr;  // [2 sides][kernel][hidden]
  PackedMatrix projection;      // [2 · kernel · groups, hidden]

  explicit operator bool() const { return kernel != 0; }
  std::uint32_t coefficients() const { return 2 * kernel * groups; }

  // `name`base_kernel and `name`kernel_projection.weight.
  void declare(WeightLoader& loader, const std::string& name, std::uint32_t hidden);

  // Side 0 over scratch.normed, in place; leaves δ of both sides in scratch.coefficients.
  void begin(Device& device, const StepTable& step, Scratch& scratch, bool compute_fp32) const;
  // Side 1 over `out`, [rows][hidden], in place.
  void end(Device& device, const StepTable& step, const Scratch& scratch, float* out) const;

 private:
  BlockConvolutionJob job(const Scratch& scratch, std::uint32_t side, float* inout) const;
};

}  // namespace drafthouse
