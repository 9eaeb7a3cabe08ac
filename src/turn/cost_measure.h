#pragma once

#include <atomic>

#include "drafthouse/status.h"
#include "turn/turn.h"
#include "turn/width_policy.h"

namespace drafthouse {

// Times target passes of several widths and, with a draft, the draft's pass, on a short made-up
// sequence; where a pass may have several sequences, on a small model also passes of their rows.
// Takes a quarter of a second on a small model, more on a busy machine, and a few passes on a large
// one, which may be seconds: `cancel` (may be null) is looked at in every layer.
Result<CostTable> measure_costs(TurnRunner& runner, const std::atomic<bool>* cancel);

}  // namespace drafthouse
