#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/output.h"
#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

struct HelpOptions {
  std::string verb;
  std::string inner;  // a verb of that verb
};

const CLI::App* verb_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

constexpr char kExamples[] = R"(Examples:
  drafthouse help
  drafthouse help generate
  drafthouse help cache ls

The same as --help: alone, or after the verb.)";

int run_help(const CLI::App& app, const HelpOptions& options) {
  if (options.verb.empty()) {
    // Not app.help(), which tells about the verb that was typed: this one.
    const auto normal = CLI::AppFormatMode::Normal;
    return write_out(app.get_formatter()->make_help(&app, app.get_name(), normal));
  }
  const CLI::App* verb = verb_of(app, options.verb);
  if (verb == nullptr) return unknown_verb(app, options.verb);
  if (options.inner.empty()) return write_out(verb->help(app.get_name()));
  const CLI::App* inner = verb_of(*verb, options.inner);
  if (inner == nullptr) {
    return usage_error("help", fmt::format("{} has no verb \"{}\"", options.verb, options.inner));
  }
  return write_out(inner->help(app.get_name() + " " + verb->get_name()));
}

}  // namespace

void add_help(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<HelpOptions>();
  const std::string verbs = CLI::detail::join(verb_names(app), "|");
  CLI::App* verb = app.add_subcommand("help", "Print how to use a verb, or drafthouse");
  verb->add_option("verb", options->verb, "Which verb")->type_name(verbs);
  verb->add_option("inner", options->inner, "A verb of that verb")->type_name("VERB");
  verb->footer(kExamples);
  verb->callback(
      [&run, &app, options] { run = [&app, options] { return run_help(app, *options); }; });
}

}  // namespace drafthouse::cli
