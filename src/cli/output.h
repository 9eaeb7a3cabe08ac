#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/verb.h"
#include "drafthouse/status.h"

// What a verb says: its answer on standard output, everything else on standard error.

namespace drafthouse::cli {

// Writes to standard output and flushes: kOk. kReaderGone once its reader has gone away, which is
// no failure and is not told. kFailed once it takes nothing more for another reason, which is told
// once on standard error.
[[nodiscard]] ExitCode write_out(std::string_view text);

// Writes "drafthouse: <text>" and a line end to standard error.
void say(std::string_view text);

// Reports why a verb cannot go on, as one line on standard error and, for a verb that was asked for
// JSON, as {"error": {"code", "message"}} on standard output. Returns the exit code.
int fail(const Status& why, bool json);

// The same for a command line that no retry makes right; exit code 2.
int usage_error(std::string_view verb, std::string_view text);

// "invalid_argument", "corrupt", …
std::string_view name_of(Code code);

// One JSON object on standard output. `Json` is nlohmann::json, which headers do not name.
template <class Json>
int print_json(const Json& object, int exit_code) {
  const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace);
  const ExitCode written = write_out(text + "\n");
  return written == kOk ? exit_code : written;
}

// "1 run", "2 runs".
std::string counted(std::uint64_t count, std::string_view thing);

// True when standard error is a terminal that a person looks at.
bool stderr_is_terminal();

}  // namespace drafthouse::cli
