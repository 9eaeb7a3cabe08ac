#pragma once

#include "base/memory_budget.h"
#include "cache/state_digest.h"
#include "cache/state_layout.h"

namespace drafthouse {

// What makes stored bytes of a pair valid.
struct StateSpec {
  StateDigest target = {};
  StateDigest draft = {};   // the target's digest and the draft's together; unused without a draft
  StateFields fields = {};  // the target's, then the draft's, whose names begin with "draft "
  StateLayout layout = {};
  // May be null.
  MemoryBudget* budget = nullptr;
};

}  // namespace drafthouse
