#pragma once

#include <string_view>

#include "base/memory_budget.h"
#include "cache/cache_manager.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"

namespace drafthouse {

// The version of the numbers that kernels give: part of every state digest. Raise it when any
// kernel's bits change; a test with pinned bytes fails until then.
inline constexpr int kNumericsVersion = 1;

// What makes stored state of a pair valid. `draft` may be null. `isa`: the kernels' class. `hooks`:
// the approximate hooks that are bound, or empty.
StateSpec state_spec(const Decoder& target, const DFlashDraft* draft, const StateLayout& layout,
                     std::string_view isa, std::string_view hooks, MemoryBudget* budget);

}  // namespace drafthouse
