#pragma once

#include <cstdint>

#include "base/memory.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Sizes of a Scratch. Widths are in floats per row; what is 0 is not allocated.
struct ScratchShape {
  std::uint32_t rows = 0;
  std::uint32_t hidden = 0;
  std::uint32_t qkv = 0;
  std::uint32_t attended = 0;
  std::uint32_t intermediate = 0;
  bool branches = false;
  std::uint32_t experts = 0;
  std::uint32_t experts_per_row = 0;
  std::uint32_t expert_intermediate = 0;
  std::uint32_t layer_inputs = 0;  // of all layers together
  std::uint32_t convolved = 0;
  std::uint32_t coefficients = 0;
};

// Activations of one pass, [rows][width] each, sized once for the widest pass.
struct Scratch {
  Buffer hidden;  // residual stream
  Buffer normed;  // input of a linear layer
  Buffer qkv;
  Buffer attended;
  Buffer gate_up;
  Buffer gated;
  // What is normed before it joins the stream: of a layer's part, and of its experts.
  Buffer branch;
  Buffer expert_branch;
  Buffer router;          // [rows][experts]
  Buffer expert_ids;      // [rows][experts_per_row], std::uint32_t
  Buffer expert_weights;  // [rows][experts_per_row]
  // A row for every expert of every row of the pass.
  Buffer expert_slots;        // [hidden]
  Buffer expert_gate_up;      // [2 · expert_intermediate]
  Buffer expert_gated;        // [expert_intermediate]
  Buffer convolved;           // output of a recurrent layer's convolution
  Buffer coefficients;        // of a draft block's convolutions; see BlockConvolution
  Buffer layer_inputs;        // [rows][layer_inputs]
  Buffer layer_input_tokens;  // the same, before it is mixed in

  static Result<Scratch> create(const ScratchShape& shape, MemoryLedger& ledger);
};

}  // namespace drafthouse
