#include "model/scratch.h"

#include <utility>

namespace drafthouse {

Result<Scratch> Scratch::create(const ScratchShape& shape, MemoryLedger& ledger) {
  Scratch scratch;
  Status failure;
  const auto allocate = [&](Buffer& buffer, std::size_t rows, std::size_t width) {
    if (!failure.ok() || rows * width == 0) return;
    Result<Buffer> memory =
        Buffer::allocate(rows * width * sizeof(float), MemoryTag::activations, ledger);
    if (!memory.ok()) {
      failure = memory.status();
    } else {
      buffer = std::move(memory).value();
    }
  };
  const std::size_t rows = shape.rows;
  allocate(scratch.hidden, rows, shape.hidden);
  allocate(scratch.normed, rows, shape.hidden);
  allocate(scratch.qkv, rows, shape.qkv);
  allocate(scratch.attended, rows, shape.attended);
  allocate(scratch.gate_up, rows, std::size_t{2} * shape.intermediate);
  allocate(scratch.gated, rows, shape.intermediate);
  allocate(scratch.branch, rows, shape.branches ? shape.hidden : 0);
  allocate(scratch.expert_branch, rows, shape.branches && shape.experts > 0 ? shape.hidden : 0);
  allocate(scratch.router, rows, shape.experts);
  allocate(scratch.expert_ids, rows, shape.experts_per_row);
  allocate(scratch.expert_weights, rows, shape.experts_per_row);
  const std::size_t slots = rows * shape.experts_per_row;
  allocate(scratch.expert_slots, slots, shape.hidden);
  allocate(scratch.expert_gate_up, slots, std::size_t{2} * shape.expert_intermediate);
  allocate(scratch.expert_gated, slots, shape.expert_intermediate);
  allocate(scratch.convolved, rows, shape.convolved);
  allocate(scratch.coefficients, rows, shape.coefficients);
  allocate(scratch.layer_inputs, rows, shape.layer_inputs);
  allocate(scratch.layer_input_tokens, rows, shape.layer_inputs);
  if (!failure.ok()) return failure;
  return scratch;
}

}  // namespace drafthouse
