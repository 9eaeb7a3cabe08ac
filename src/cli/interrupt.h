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

// For a verb that goes on after an interruption: while one lives, SIGINT and SIGTERM are only
// noted. A second signal before the first was taken ends the process. One at a time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Becomes readable when a signal comes, until take() is called; −1: the system gave no
  // descriptor.
  int descriptor() const { return descriptor_; }
  // The signal that came since the last call; 0: none.
  int take();

 private:
  int descriptor_;
};

}  // namespace drafthouse::cli
