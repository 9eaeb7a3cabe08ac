#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "device/device.h"
#include "model/scratch.h"
#include "model/weight_loader.h"

namespace drafthouse {

// Weights of a recurrent layer's mixer, which stands where others have attention. Matrices are
// [outputs, inputs]; a part that its kind does not have is empty or null.
//
// Gated delta rule (Qwen3-Next and later): x → q, k, v, z, beta, alpha; silu(convolution(q | k |
// v)); the rule per value head; gated norm by z; out. Gated convolution (LFM2): x → B | C | X; C ·
// convolution(B · X); out.
struct RecurrentWeights {
  PackedMatrix
      in;  // [channels, hidden], with z behind them [channels + values, hidden], or B | C | X
  PackedMatrix in_z;  // [values, hidden]
  PackedMatrix in_b;  // [value heads, hidden], or [2 · value heads, hidden] with alpha behind beta
  PackedMatrix in_a;  // [value heads, hidden]
  std::array<const float*, kConvTapsMax> convolution{};  // [kernel] rows of channels
  const float* a_log = nullptr;                          // [value heads]
  const float* dt_bias = nullptr;                        // [value heads]
  NormWeights out_norm;                                  // [value_dim]
  PackedMatrix out;                                      // [hidden, inner]

  // Calls visit(const PackedMatrix&) for every matrix that the layer has.
  template <class Visit>
  void each_matrix(Visit&& visit) const {
    for (const PackedMatrix* matrix : {&in, &in_z, &in_b, &in_a, &out}) {
      if (matrix->outputs != 0) visit(*matrix);
    }
  }
};

// Floats per row that a mixer of this layout needs: of its projections, and of what goes to `out`.
std::uint32_t projected_width(const RecurrentLayout& layout);
std::uint32_t inner_width(const RecurrentLayout& layout);

// How a file has the tensors of a delta rule.
struct DeltaTensors {
  // in_proj_qkvz and in_proj_ba, rows grouped by key head, instead of two matrices each. A file
  // that has the two (GGUF may split the first) is taken as it is.
  bool fused = false;
  // Value head i of the file goes with key head i mod key_heads.
  bool tiled_heads = false;
};

// The tensors of a delta rule under `prefix`linear_attn.; −e^A_log may stand in place of A_log, as
// "rate".
void declare_delta_rule(WeightLoader& loader, const std::string& prefix,
                        const RecurrentLayout& layout, std::uint32_t hidden, float eps,
                        DeltaTensors tensors, RecurrentWeights& weights);

// The taps of a convolution: a tensor [channels, 1, kernel]. `order`: of its channels.
void declare_convolution(WeightLoader& loader, const std::string& name,
                         const RecurrentLayout& layout, RecurrentWeights& weights,
                         const RowOrder& order = {});

// scratch.hidden += out · mixer(norm(scratch.hidden)); writes what later rows need of these into
// the pages of the layout's groups.
void run_recurrent(Device& device, const StepTable& step, Scratch& scratch, NormWeights norm,
                   const RecurrentWeights& weights, const RecurrentLayout& layout,
                   std::uint32_t hidden, bool compute_fp32);

}  // namespace drafthouse
