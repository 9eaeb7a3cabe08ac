#pragma once

#include <atomic>

namespace drafthouse::cli {

// From now on SIGINT and SIGTERM set the flag once; a second one ends the process at once with exit
// code 130. SIGPIPE is ignored, so that writing to a closed pipe is an error like any other.
void catch_signals();

// Set by a signal: work should end soon. For EngineOptions::cancel and its like.
std::atomic<bool>& interrupt_flag();

inline bool interrupted() { return interrupt_flag().load(std::memory_order_relaxed); }

}  // namespace drafthouse::cli
