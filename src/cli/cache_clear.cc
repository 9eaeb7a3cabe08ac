#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/cache_folder.h"
#include "cli/cache_removal.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

struct ClearOptions {
  std::string folder;
  std::string digest;
  bool all = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse cache clear ~/.cache/drafthouse --digest 3fa1
  drafthouse cache clear ~/.cache/drafthouse --all

Asks nothing. What a process writes now is left alone and named, and so is every file that is not of a
drafthouse cache. Exit codes: 0 done, 1 failed or something was left, 2 wrong usage.)";

int run_clear(const ClearOptions& options) {
  if (options.all == !options.digest.empty()) {
    return usage_error("cache clear", "cache clear needs either --all or --digest HEX");
  }
  std::optional<std::string> digest;
  if (!options.all) {
    Result<DigestSummary> found = find_digest(options.folder, options.digest);
    if (!found.ok()) return fail(found.status(), options.json);
    digest = found.value().digest;
  }
  const Result<PruneReport> cleared = clear_disk_cache(posix_file_system(), options.folder, digest);
  if (!cleared.ok()) return fail(cleared.status(), options.json);
  const int exit_code = print_removal(cleared.value(), false, options.json);
  return cleared.value().busy.empty() ? exit_code : kFailed;
}

}  // namespace

void add_cache_clear(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<ClearOptions>();
  CLI::App* verb = app.add_subcommand("clear", "Remove one digest, or all that is stored");
  add_folder_argument(*verb, options->folder);
  verb->add_option("--digest", options->digest, "This one; its first digits are enough")
      ->type_name("HEX");
  verb->add_flag("--all", options->all, "All of them");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_clear(*options); }; });
}

}  // namespace drafthouse::cli
