#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"

namespace drafthouse::cli {
namespace {

// Returns 0 or errno.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

ExitCode write_out(std::string_view text) {
  static ExitCode state = kOk;
  if (state != kOk) return state;
  const int error = write_all(STDOUT_FILENO, text);
  if (error == 0) return kOk;
  state = error == EPIPE ? kReaderGone : kFailed;
  if (state == kFailed) {
    say(fmt::format("cannot write to standard output: {}", std::strerror(error)));
  }
  return state;
}

void say(std::string_view text) {
  std::string line = "drafthouse: ";
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    line += control ? ' ' : c;
  }
  line += '\n';
  // There is nowhere left to tell that standard error is gone.
  static_cast<void>(write_all(STDERR_FILENO, line));
}

int fail(const Status& why, bool json) {
  const bool by_person = why.code() == Code::cancelled && interrupted();
  say(by_person ? "interrupted" : why.message());
  const int exit_code = by_person ? kInterrupted : kFailed;
  if (!json) return exit_code;
  return print_json(
      nlohmann::json{{"error", {{"code", name_of(why.code())}, {"message", why.message()}}}},
      exit_code);
}

int usage_error(std::string_view verb, std::string_view text) {
  say(fmt::format("{} (see drafthouse {} --help)", text, verb));
  return kUsage;
}

std::string_view name_of(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::context_overflow: return "context_overflow";
    case Code::not_found: return "not_found";
    case Code::busy: return "busy";
    case Code::no_memory: return "no_memory";
    case Code::corrupt: return "corrupt";
    case Code::mismatch: return "mismatch";
    case Code::unsupported: return "unsupported";
    case Code::conflict: return "conflict";
    case Code::closed: return "closed";
    case Code::cancelled: return "cancelled";
    case Code::internal: return "internal";
  }
  return "internal";
}

std::string counted(std::uint64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace drafthouse::cli
