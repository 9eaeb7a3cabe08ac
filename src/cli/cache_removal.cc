#include "cli/cache_removal.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

std::string removal_text(const PruneReport& report, bool dry_run) {
  std::string text;
  for (const PruneReport::Part& part : report.parts) {
    text += fmt::format("{}  {}, {}\n", part.digest.substr(0, 12), counted(part.runs, "run"),
                        human_bytes(part.bytes));
  }
  for (const std::string& digest : report.busy) {
    text += fmt::format("{}  busy: a process writes it now, left alone\n", digest.substr(0, 12));
  }
  text += fmt::format("{} {}: {} before, {} after\n", dry_run ? "would remove" : "removed",
                      counted(report.runs, "run"), human_bytes(report.bytes_before),
                      human_bytes(report.bytes_after));
  return text;
}

}  // namespace

int print_removal(const PruneReport& report, bool dry_run, bool as_json) {
  if (!as_json) return write_out(removal_text(report, dry_run));
  json parts = json::array();
  for (const PruneReport::Part& part : report.parts) {
    parts.push_back({{"digest", part.digest}, {"runs", part.runs}, {"bytes", part.bytes}});
  }
  return print_json(json{{"bytes_before", report.bytes_before},
                         {"bytes_after", report.bytes_after},
                         {"runs", report.runs},
                         {"digests", parts},
                         {"busy", report.busy},
                         {"dry_run", dry_run}},
                    kOk);
}

}  // namespace drafthouse::cli
