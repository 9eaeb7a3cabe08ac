#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/cache_folder.h"
#include "cli/output.h"
#include "formats/printable.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct VerifyOptions {
  std::string folder;
  std::string digest;
  bool set_aside = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse cache verify ~/.cache/drafthouse
  drafthouse cache verify ~/.cache/drafthouse --digest 3fa1 --set-aside

Reads every stored page and compares its checksum. What is damaged is never used, whether found here or
by a model; --set-aside moves it into the quarantine, so that it can be stored anew.
Exit codes: 0 all is well, 1 something is damaged or could not be read, 2 wrong usage.)";

std::string report_text(const VerifyReport& report) {
  std::string text;
  for (const std::string& line : report.damaged) text += "damaged: " + printable(line) + "\n";
  for (const std::string& digest : report.busy) {
    text += fmt::format("busy: {}: a process writes it now, nothing was set aside\n", digest);
  }
  text += fmt::format(
      "{} in {} read, {}: {}\n", counted(report.pages, "page"), counted(report.runs, "run"),
      human_bytes(report.bytes),
      report.damaged.empty() ? "all are whole" : fmt::format("{} damaged", report.damaged.size()));
  if (report.set_aside > 0) {
    text += counted(report.set_aside, "run") + " set aside\n";
  } else if (!report.damaged.empty() && report.busy.empty()) {
    text += "--set-aside moves what is damaged away, so that it can be stored anew\n";
  }
  return text;
}

int run_verify(const VerifyOptions& options) {
  std::optional<std::string> digest;
  if (!options.digest.empty()) {
    Result<DigestSummary> found = find_digest(options.folder, options.digest);
    if (!found.ok()) return fail(found.status(), options.json);
    digest = found.value().digest;
  }
  const Result<VerifyReport> verified =
      verify_disk_cache(posix_file_system(), options.folder, digest, options.set_aside);
  if (!verified.ok()) return fail(verified.status(), options.json);
  const VerifyReport& report = verified.value();
  const int exit_code = report.damaged.empty() ? kOk : kFailed;
  if (!options.json) {
    const ExitCode written = write_out(report_text(report));
    return written == kOk ? exit_code : written;
  }
  return print_json(json{{"runs", report.runs},
                         {"pages", report.pages},
                         {"bytes", report.bytes},
                         {"damaged", report.damaged},
                         {"set_aside", report.set_aside},
                         {"busy", report.busy}},
                    exit_code);
}

}  // namespace

void add_cache_verify(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* verb = app.add_subcommand("verify", "Read all that is stored and check it");
  add_folder_argument(*verb, options->folder);
  verb->add_option("--digest", options->digest, "Only this one; its first digits are enough")
      ->type_name("HEX");
  verb->add_flag("--set-aside", options->set_aside, "Move what is damaged into the quarantine");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_verify(*options); }; });
}

}  // namespace drafthouse::cli
