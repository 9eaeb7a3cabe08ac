#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafthouse/sampling.h"
#include "sampling/history.h"

namespace drafthouse {

// Repetition, presence and frequency penalties on a row of `row.size()` logits. Requires counts.
void apply_penalties(const SamplingOptions& options, const History& history, std::span<float> row);

// DRY on a row: for every id that would continue a repetition, by the longest one that it
// continues. `matches` is working memory.
void apply_dry(const SamplingOptions& options, std::span<const std::uint32_t> ids,
               std::vector<std::uint32_t>& matches, std::span<float> row);

}  // namespace drafthouse
