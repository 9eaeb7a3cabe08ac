#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/units.h"
#include "cli/byte_size.h"
#include "cli/cache_folder.h"
#include "cli/cache_removal.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

struct PruneOptions {
  std::string folder;
  std::string to;
  bool dry_run = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse cache prune ~/.cache/drafthouse --to 5GiB --dry-run
  drafthouse cache prune ~/.cache/drafthouse --to 5GiB

Removes what was used longest ago, ends of texts before their beginnings. What a process writes now is
left alone. Exit codes: 0 done, 1 failed or still larger than asked for, 2 wrong usage.)";

int run_prune(const PruneOptions& options) {
  const std::uint64_t bytes_max = parse_bytes(options.to).value_or(0);
  const Result<PruneReport> pruned =
      prune_disk_cache(posix_file_system(), options.folder, bytes_max, options.dry_run);
  if (!pruned.ok()) return fail(pruned.status(), options.json);
  const PruneReport& report = pruned.value();
  const int exit_code = print_removal(report, options.dry_run, options.json);
  if (exit_code != kOk || report.bytes_after <= bytes_max) return exit_code;
  say(fmt::format("{} still holds {}: {}", options.folder, human_bytes(report.bytes_after),
                  report.busy.empty() ? "the rest is not stored state"
                                      : "processes use the rest; try again once they have ended"));
  return kFailed;
}

}  // namespace

void add_cache_prune(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<PruneOptions>();
  CLI::App* verb = app.add_subcommand("prune", "Remove what was used longest ago");
  add_folder_argument(*verb, options->folder);
  verb->add_option("--to", options->to,
                   "Until the folder holds at most this much: bytes, 512M, 20GiB")
      ->type_name("SIZE")
      ->check(bytes_check())
      ->required();
  verb->add_flag("--dry-run", options->dry_run, "Only say what would be removed");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_prune(*options); }; });
}

}  // namespace drafthouse::cli
