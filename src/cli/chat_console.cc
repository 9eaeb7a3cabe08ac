#include "cli/chat_console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/output.h"

namespace drafthouse::cli {
namespace {

constexpr std::string_view kFence = "\"\"\"";

}  // namespace

ChatConsole::ChatConsole(SignalWatch& watch, bool json)
    : reader_(watch),
      json_(json),
      terminal_(::isatty(STDIN_FILENO) == 1 && stderr_is_terminal()),
      screen_(::isatty(STDOUT_FILENO) == 1),
      dims_(stderr_is_terminal() && std::getenv("NO_COLOR") == nullptr) {}

bool ChatConsole::add_line(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  const bool opens = !fenced_ && line.starts_with(kFence);
  if (opens) line.erase(0, kFence.size());
  if (!fenced_ && !opens) {
    message_ = std::move(line);
    return true;
  }
  const bool closes = line.ends_with(kFence);
  if (closes) line.resize(line.size() - kFence.size());
  // The lines that hold the marks count only for what else they hold.
  if (opens) {
    message_ = line.empty() || closes ? line : line + "\n";
  } else {
    message_ += closes ? line : line + "\n";
  }
  if (closes && message_.ends_with('\n')) message_.pop_back();
  fenced_ = !closes;
  return closes;
}

LineReader::Got ChatConsole::read(std::string& text) {
  std::string line;
  while (true) {
    if (terminal_) show(fenced_ ? "... " : ">>> ");
    const LineReader::Got got = reader_.next(line);
    if (got == LineReader::Got::end && fenced_) {
      fenced_ = false;
      if (message_.ends_with('\n')) message_.pop_back();
    } else if (got != LineReader::Got::line) {
      text = line;
      return got;
    } else if (!add_line(std::move(line))) {
      continue;
    }
    if (message_.find_first_not_of(" \t\n") == std::string::npos) continue;
    text = std::move(message_);
    message_.clear();
    return LineReader::Got::line;
  }
}

ExitCode ChatConsole::piece(const std::string& text, const ReplyPart& reply) {
  const std::string shown = screen_ ? reply_.show(reply) : text;
  if (json_ || shown.empty()) return kOk;
  ends_line_ = shown.back() == '\n';
  return write_out(shown);
}

ExitCode ChatConsole::end_answer() {
  const bool lacks_end = !json_ && !ends_line_;
  ends_line_ = true;
  reply_.reset();
  return lacks_end ? write_out("\n") : kOk;
}

void ChatConsole::figures(const std::string& line) const {
  if (!terminal_) return say(line);
  show(dims_ ? fmt::format("\x1b[2m{}\x1b[0m\n", line) : line + "\n");
}

void ChatConsole::show(std::string_view text) const {
  fmt::print(stderr, "{}", text);
  std::fflush(stderr);
}

}  // namespace drafthouse::cli
