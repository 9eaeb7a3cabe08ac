#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/cache_folder.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct LsOptions {
  std::string folder;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse cache ls ~/.cache/drafthouse
  drafthouse cache ls ~/.cache/drafthouse --json

A pair of target and draft has a digest for the target's state and one for the draft's. "busy" is one
that a process writes now.)";

json describe(const DigestSummary& digest) {
  return {{"digest", digest.digest},
          {"models", digest.models},
          {"tenants", digest.tenants},
          {"snapshots", digest.snapshots},
          {"runs", digest.runs},
          {"pages", digest.pages},
          {"tokens", digest.tokens},
          {"bytes", digest.bytes},
          {"last_use", seconds_of(digest.last_use_ns)},
          {"busy", digest.locked}};
}

std::string table(const DirectorySummary& found) {
  std::string text =
      fmt::format("{:<14}{:>9}{:>11}{:>10}{:>9}{:>12}  {:<14}{}\n", "digest", "tenants",
                  "snapshots", "tokens", "pages", "size", "last used", "models");
  std::size_t empty = 0;
  for (const DigestSummary& digest : found.digests) {
    if (digest.runs == 0 && !digest.locked) {
      ++empty;
      continue;
    }
    text +=
        fmt::format("{:<14}{:>9}{:>11}{:>10}{:>9}{:>12}  {:<14}{}{}\n", digest.digest.substr(0, 12),
                    digest.tenants, digest.snapshots, digest.tokens, digest.pages,
                    human_bytes(digest.bytes), age_of(digest.last_use_ns),
                    digest.models.empty() ? "?" : digest.models, digest.locked ? " (busy)" : "");
  }
  if (found.digests.size() == empty) text = "nothing is stored here\n";
  if (empty > 0) text += fmt::format("{} without anything stored\n", counted(empty, "digest"));
  text += fmt::format("{} in all, {} of it logs, other versions and what was set aside\n",
                      human_bytes(found.bytes), human_bytes(found.other_bytes));
  return text;
}

int run_ls(const LsOptions& options) {
  const Result<DirectorySummary> found = list_folder(options.folder);
  if (!found.ok()) return fail(found.status(), options.json);
  const DirectorySummary& summary = found.value();
  if (!options.json) return write_out(table(summary));
  json digests = json::array();
  for (const DigestSummary& digest : summary.digests) digests.push_back(describe(digest));
  return print_json(json{{"folder", options.folder},
                         {"bytes", summary.bytes},
                         {"other_bytes", summary.other_bytes},
                         {"digests", digests}},
                    kOk);
}

}  // namespace

void add_cache_ls(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* verb = app.add_subcommand("ls", "What is stored, a line per digest");
  add_folder_argument(*verb, options->folder);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_ls(*options); }; });
}

}  // namespace drafthouse::cli
