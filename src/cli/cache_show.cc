#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/cache_folder.h"
#include "cli/output.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct ShowOptions {
  std::string folder;
  std::optional<std::string> digest;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse cache show ~/.cache/drafthouse --digest 3fa1
  drafthouse cache show ~/.cache/drafthouse --digest 3fa1 --json

A run is what is written and removed as one: pages of one text, one after the other. A snapshot is a run
that nothing continues. Prompts themselves are stored as token ids only.)";

double per(std::uint64_t bytes, std::uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(count);
}

std::string table(const DigestSummary& digest) {
  const auto row = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<11}{}\n", name, value);
  };
  std::string text = row("digest", digest.digest);
  if (!digest.models.empty()) text += row("models", digest.models);
  text += row("size", fmt::format("{}, {:.0f} bytes a token", human_bytes(digest.bytes),
                                  per(digest.bytes, digest.tokens)));
  text += row("tokens", fmt::format("{} that can be found, each prefix once", digest.tokens));
  text += row("pages", fmt::format("{} in {}", digest.pages, counted(digest.runs, "run")));
  text += row("snapshots",
              fmt::format("{} of {}", digest.snapshots, counted(digest.tenants, "tenant")));
  text += row("last used", age_of(digest.last_use_ns));
  text += row("busy", digest.locked ? "yes: a process writes it now" : "no");
  if (digest.fields.empty()) return text;
  text += "\nthe digest stands for\n";
  for (const auto& [name, value] : digest.fields) {
    text += fmt::format("  {:<16}{}\n", name, value.empty() ? "none" : value);
  }
  return text;
}

int run_show(const ShowOptions& options) {
  const Result<DigestSummary> found = options.digest.has_value()
                                          ? find_digest(options.folder, *options.digest)
                                          : only_digest(options.folder);
  if (!found.ok()) return fail(found.status(), options.json);
  const DigestSummary& digest = found.value();
  if (!options.json) return write_out(table(digest));
  json fields = json::object();
  for (const auto& [name, value] : digest.fields) fields[name] = value;
  return print_json(json{{"digest", digest.digest},
                         {"models", digest.models},
                         {"fields", std::move(fields)},
                         {"tenants", digest.tenants},
                         {"snapshots", digest.snapshots},
                         {"runs", digest.runs},
                         {"pages", digest.pages},
                         {"tokens", digest.tokens},
                         {"bytes", digest.bytes},
                         {"bytes_per_token", per(digest.bytes, digest.tokens)},
                         {"last_use", seconds_of(digest.last_use_ns)},
                         {"busy", digest.locked}},
                    kOk);
}

}  // namespace

void add_cache_show(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* verb = app.add_subcommand("show", "One digest in detail");
  add_folder_argument(*verb, options->folder);
  verb->add_option("--digest", options->digest, "Which; its first digits are enough [the only one]")
      ->type_name("HEX");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_show(*options); }; });
}

}  // namespace drafthouse::cli
