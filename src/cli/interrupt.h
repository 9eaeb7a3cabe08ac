#pragma once

#include <atomic>

namespace drafthouse::cli {

// From now on SIGINT and SIGTERM end the process at once with exit code 130, and SIGPIPE is
// ignored, so that writing to a closed pipe is an error like any other.
void catch_signals();

// Set by SIGINT or SIGTERM: work should end soon. From the first call on, the first signal only
// sets the flag; a second one, or 0.7 seconds, end the process. For EngineOptions::cancel and its
// like.
std::atomic<bool>& interrupt_flag();

// Whether a signal came since then.
bool interrupted();

}  // namespace drafthouse::cli
