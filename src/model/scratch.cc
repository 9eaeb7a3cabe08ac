#include "model/scratch.h"

#include <utility>

namespace drafthouse {

Result<Scratch> Scratch::create(std::uint32_t rows, std::uint32_t hidden, std::uint32_t qkv,
                                std::uint32_t attended, std::uint32_t intermediate,
                                MemoryLedger& ledger) {
  Scratch scratch;
  Status failure;
  const auto allocate = [&](Buffer& buffer, std::size_t width) {
    if (!failure.ok()) return;
    Result<Buffer> memory =
        Buffer::allocate(rows * width * sizeof(float), MemoryTag::activations, ledger);
    if (!memory.ok()) {
      failure = memory.status();
    } else {
      buffer = std::move(memory).value();
    }
  };
  allocate(scratch.hidden, hidden);
  allocate(scratch.normed, hidden);
  allocate(scratch.qkv, qkv);
  allocate(scratch.attended, attended);
  allocate(scratch.gate_up, std::size_t{2} * intermediate);
  allocate(scratch.gated, intermediate);
  if (!failure.ok()) return failure;
  return scratch;
}

}  // namespace drafthouse
