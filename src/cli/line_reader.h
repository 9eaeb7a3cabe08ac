#pragma once

#include <string>

#include "cli/interrupt.h"

namespace drafthouse::cli {

// The lines of standard input, one at a time, as a terminal or a pipe gives them. Confined to one
// thread.
class LineReader {
 public:
  enum class Got {
    line,
    end,       // nothing more comes
    signal,    // the watch has noted one, which is taken
    too_long,  // a line of more than kInputBytesMax, skipped
    failed,    // standard input cannot be read: `line` says why
  };

  // `watch` must outlive it.
  explicit LineReader(SignalWatch& watch) : watch_(watch) {}

  // Waits for a line; `line` is without its line end.
  Got next(std::string& line);

 private:
  SignalWatch& watch_;
  std::string buffer_;        // read and not yet given
  std::size_t searched_ = 0;  // of it: holds no line end
  bool ended_ = false;
  bool skipping_ = false;  // inside a line that is too long
};

}  // namespace drafthouse::cli
