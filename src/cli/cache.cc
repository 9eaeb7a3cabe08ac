#include <CLI/CLI.hpp>

#include "cli/cache_folder.h"
#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

constexpr char kExamples[] = R"(Examples:
  drafthouse cache ls ~/.cache/drafthouse
  drafthouse cache verify ~/.cache/drafthouse
  drafthouse cache prune ~/.cache/drafthouse --to 5GiB

A folder given with --cache-dir holds the state of prompts and answers, by digest: two models, or one
model with other settings, have different ones. These verbs work while others use the folder, and touch
nothing in it that is not theirs. Each has --help and --json.)";

}  // namespace

void add_cache(CLI::App& app, RunFn& run) {
  CLI::App* verb = app.add_subcommand("cache", "What a --cache-dir folder holds, and making room");
  verb->require_subcommand(1);
  add_cache_ls(*verb, run);
  add_cache_show(*verb, run);
  add_cache_verify(*verb, run);
  add_cache_prune(*verb, run);
  add_cache_clear(*verb, run);
  verb->footer(kExamples);
}

}  // namespace drafthouse::cli
