#include "cli/verb.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/suggest.h"

namespace drafthouse::cli {

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

int unknown_verb(const CLI::App& app, const std::string& word) {
  const std::string near = nearest(word, verb_names(app));
  say(fmt::format("'{}' is not a verb{} (see drafthouse --help)", word,
                  near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  return kUsage;
}

}  // namespace drafthouse::cli
