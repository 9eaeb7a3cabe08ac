#include <CLI/CLI.hpp>
#include <memory>

#include "cli/output.h"
#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

struct HelpOptions {
  std::string verb;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse help
  drafthouse help generate

The same as --help: alone, or after the verb.)";

int run_help(const CLI::App& app, const HelpOptions& options) {
  if (options.verb.empty()) {
    // Not app.help(), which tells about the verb that was typed: this one.
    const auto normal = CLI::AppFormatMode::Normal;
    return write_out(app.get_formatter()->make_help(&app, app.get_name(), normal));
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == options.verb) return write_out(verb->help(app.get_name()));
  }
  return unknown_verb(app, options.verb);
}

}  // namespace

void add_help(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<HelpOptions>();
  const std::string verbs = CLI::detail::join(verb_names(app), "|");
  CLI::App* verb = app.add_subcommand("help", "Print how to use a verb, or drafthouse");
  verb->add_option("verb", options->verb, "Which verb")->type_name(verbs);
  verb->footer(kExamples);
  verb->callback(
      [&run, &app, options] { run = [&app, options] { return run_help(app, *options); }; });
}

}  // namespace drafthouse::cli
