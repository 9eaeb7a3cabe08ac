#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "device/device.h"
#include "formats/limits.h"
#include "formats/model_config.h"
#include "model/weight_loader.h"

namespace drafthouse {

// A DFlash2 draft's selector: scores the likeliest ids of a block's row, knowing which id was
// chosen in the row before.
//
//   score(id) = logit(id) + Σr (A[previous][r] · g[r]) · S[id][r],   g = hidden_projection · hidden
//
// A and S are codebooks with a row of `rank` numbers for each id.
class CandidateSelector {
 public:
  static constexpr std::uint32_t kTopKMax = limits::kSelectorMax;

  // What score() works in. Confined to one thread.
  struct Workspace {
    Buffer hidden;      // [rows][rank], g of the block's rows
    Buffer codes;       // [1 + top_k][rank]
    StepTable lookups;  // ids of codes
  };

  void declare(WeightLoader& loader, const Dflash2Config& config, std::uint32_t vocabulary,
               std::uint32_t hidden);
  Result<Workspace> make_workspace(std::uint32_t rows, MemoryLedger& ledger) const;

  std::uint32_t top_k() const { return top_k_; }
  std::size_t matrix_bytes() const { return projection_.bytes(); }

  // g of `rows` normed hidden states: [rows][hidden] → work.hidden.
  void project(Device& device, bool compute_fp32, const float* normed, std::uint32_t rows,
               Workspace& work) const;
  // What is added to the logits of `ids`, at most top_k(), in row `row` of the last project(), when
  // `previous` was chosen before. Ids are below the vocabulary.
  void score(Device& device, Workspace& work, std::uint32_t row, std::uint32_t previous,
             std::span<const std::uint32_t> ids, std::span<float> out) const;

 private:
  std::uint32_t rank_ = 0;
  std::uint32_t top_k_ = 0;
  PackedMatrix projection_;   // [rank, hidden]
  PackedMatrix predecessor_;  // [vocabulary, rank]
  PackedMatrix successor_;    // [vocabulary, rank]
};

}  // namespace drafthouse
