#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "model/weight_source.h"

namespace drafthouse {

// Which ids of the target the rows of a draft's own head stand for, ascending; empty: row i is id
// i. Read from tensor d2t (i64 or i32: offsets, id = i + d2t[i], or the ids themselves); t2d (a
// flag per id of the target), where it is there, must say the same. corrupt or mismatch, naming the
// tensor.
Result<std::vector<std::uint32_t>> read_draft_ids(const DraftConfig& config,
                                                  const WeightSource& source);

// The logits of a draft's own ids, in the front of a row of the target's vocabulary, go to the
// places of their ids; all others become −∞. Requires ids[i] >= i.
void spread_logits(std::span<const std::uint32_t> ids, std::span<float> row);

}  // namespace drafthouse
