#pragma once

#include <cstdint>

#include "base/memory.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Activations of one pass, [rows][width] each, sized once for the widest pass.
struct Scratch {
  Buffer hidden;    // residual stream
  Buffer normed;    // input of a linear layer
  Buffer qkv;
  Buffer attended;
  Buffer gate_up;
  Buffer gated;

  // Widths are in floats per row.
  static Result<Scratch> create(std::uint32_t rows, std::uint32_t hidden, std::uint32_t qkv,
                                std::uint32_t attended, std::uint32_t intermediate,
                                MemoryLedger& ledger);
};

}  // namespace drafthouse
