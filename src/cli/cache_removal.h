#pragma once

#include "cache/disk/maintenance.h"

namespace drafthouse::cli {

// What prune and clear say about what went, or would go. Returns the exit code.
int print_removal(const PruneReport& report, bool dry_run, bool json);

}  // namespace drafthouse::cli
