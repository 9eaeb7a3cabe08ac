#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verb.h"
#include "formats/printable.h"

namespace drafthouse::cli {
namespace {

constexpr char kAbout[] =
    "drafthouse runs language models with DFlash drafts: the same tokens as without, sooner.";

constexpr char kExamples[] = R"(Examples:
  drafthouse chat --model TARGET --draft DRAFT
  drafthouse generate --model TARGET --draft DRAFT --prompt "Why is the sky blue?"
  drafthouse inspect TARGET --draft DRAFT
  drafthouse bench --shape qwen3-1.7b --format q8_0
  drafthouse doctor

A model is a Hugging Face folder, a .gguf file, or a hub id in the local cache. Every verb has --help
with examples, and most have --json. Exit codes: 0 ok, 1 failed, 2 wrong usage, 130 interrupted,
141 nobody reads the output any more (as in drafthouse … | head -1).)";

// A file that is opened must not get the number of a standard stream that the caller has closed:
// the answer would be written into it. Reads from and writes to such a stream fail or end instead.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

void add_verbs(CLI::App& app, RunFn& run) {
  add_chat(app, run);
  add_generate(app, run);
  add_score(app, run);
  add_tokenize(app, run);
  add_inspect(app, run);
  add_cache(app, run);
  add_host_demo(app, run);
  add_bench(app, run);
  add_doctor(app, run);
  add_completion(app, run);
  add_help(app, run);
}

// CLI11 would take the word after "--name=" for the value of --name.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    words.emplace_back(argv[i]);
    std::string& word = words.back();
    if (word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1) {
      word.pop_back();
      words.emplace_back();
    }
  }
  return words;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

// "cache ls": a verb with those that it stands under.
std::string full_name(const CLI::App& verb) {
  const CLI::App* above = verb.get_parent();
  if (above == nullptr || above->get_parent() == nullptr) return verb.get_name();
  return full_name(*above) + " " + verb.get_name();
}

// A word that is neither an option nor the value of one; `names`: of the verb's options.
std::string stray_word(const std::string& word, std::span<const std::string> names) {
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::string hint;
  if (has("--model") && ::access(word.c_str(), F_OK) == 0) {
    hint = "; a model is named with --model";
  } else if (has("--decode")) {
    hint = "; the text comes on standard input: echo -n \"text\" | drafthouse tokenize …";
  } else if (has("--prompt")) {
    hint = "; a prompt is one word after --prompt: put it in quotes";
  }
  return fmt::format("'{}' was not expected{}", printable(word), hint);
}

// What is wrong with the words after a verb.
int wrong_words(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> typed = app.get_subcommands();
  if (typed.empty()) {
    const std::vector<std::string> extra = app.remaining();
    say(extra.empty()
            ? fmt::format("{} (see drafthouse --help)", error.what())
            : fmt::format(
                  "a verb comes first, not {}{} (see drafthouse --help)", extra.front(),
                  did_you_mean(extra.front(), std::vector<std::string>{"--help", "--version"})));
    return kUsage;
  }
  const CLI::App* verb = typed.front();
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  const std::string verb_name = full_name(*verb);
  // A mistyped option often makes another one missing: tell the cause.
  const std::vector<std::string> extra = verb->remaining(true);
  const std::vector<std::string> below = verb_names(*verb);
  if (!below.empty() && (extra.empty() || !extra.front().starts_with("-"))) {
    const std::string list = CLI::detail::join(below, ", ");
    return usage_error(verb_name, extra.empty()
                                      ? fmt::format("{} needs one of {}", verb_name, list)
                                      : fmt::format("'{}' is not one of {}{}", extra.front(), list,
                                                    did_you_mean(extra.front(), below)));
  }
  if (extra.empty()) {
    std::string what = error.what();
    if (const std::size_t at = what.find(": At Most 1 required"); at != std::string::npos) {
      what.replace(at, std::string::npos, " is there more than once");
    }
    return usage_error(verb_name, what);
  }
  const std::string& word = extra.front();
  std::vector<std::string> names;
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (!word.starts_with("-")) return usage_error(verb_name, stray_word(word, names));
  const std::string typed_name = word.substr(0, word.find('='));
  if (typed_name.size() == 2) {
    // There are no options of one letter; the shortest that begins with it is meant most often.
    std::erase_if(names, [&](const std::string& name) { return name[2] != typed_name[1]; });
    const auto shortest =
        std::min_element(names.begin(), names.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return usage_error(
        verb_name,
        fmt::format("{} has no option {}{}", verb_name, typed_name,
                    shortest == names.end() ? "" : fmt::format("; did you mean {}?", *shortest)));
  }
  return usage_error(verb_name, fmt::format("{} has no option {}{}", verb_name, typed_name,
                                            did_you_mean(typed_name, names)));
}

int parse_and_run(int argc, char** argv) {
  RunFn run;
  CLI::App app(kAbout, "drafthouse");
  app.set_version_flag("-V,--version", "drafthouse " DRAFTHOUSE_VERSION, "Print the version");
  app.footer(kExamples);
  app.get_formatter()->column_width(36);
  app.get_formatter()->label("OPTIONS", "options");
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.get_formatter()->label("REQUIRED", "(required)");
  app.require_subcommand(1);
  add_verbs(app, run);
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) verb->group("Verbs");

  std::vector<std::string> words = arguments(argc, argv);
  if (words.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kUsage;
  }
  const std::vector<std::string> names = verb_names(app);
  if (!words.front().starts_with("-") &&
      std::find(names.begin(), names.end(), words.front()) == names.end()) {
    return unknown_verb(app, words.front());
  }
  try {
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return write_out(app.help());
  } catch (const CLI::CallForVersion& version) {
    return write_out(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return wrong_words(app, error);
  }
  return run();
}

}  // namespace
}  // namespace drafthouse::cli

int main(int argc, char** argv) {
  namespace cli = drafthouse::cli;
  cli::occupy_standard_streams();
  cli::catch_signals();
  try {
    return cli::parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    cli::say("out of memory");
  } catch (const std::exception& error) {
    cli::say(fmt::format("internal error: {}", error.what()));
  }
  return cli::kFailed;
}
