#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/input.h"

namespace drafthouse::cli {

LineReader::Got LineReader::next(std::string& line) {
  std::array<char, 1 << 14> part;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos || (ended_ && !buffer_.empty())) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end == std::string::npos ? end : end + 1);
      searched_ = 0;
      if (skipping_) {
        skipping_ = false;
        return Got::too_long;
      }
      return Got::line;
    }
    if (ended_) return Got::end;
    searched_ = buffer_.size();
    if (buffer_.size() > kInputBytesMax) {
      skipping_ = true;
      buffer_.clear();
      searched_ = 0;
    }

    std::array<pollfd, 2> waiting = {pollfd{STDIN_FILENO, POLLIN, 0},
                                     pollfd{watch_.descriptor(), POLLIN, 0}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) {
      line = std::strerror(errno);
      return Got::failed;
    }
    if (watch_.take() != 0) return Got::signal;
    if (waiting[0].revents == 0) continue;
    const ssize_t got = ::read(STDIN_FILENO, part.data(), part.size());
    if (got < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      line = std::strerror(errno);
      return Got::failed;
    }
    if (got == 0) ended_ = true;
    buffer_.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace drafthouse::cli
