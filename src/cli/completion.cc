#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/verb.h"

namespace drafthouse::cli {
namespace {

struct CompletionOptions {
  std::string shell;
};

constexpr char kShells[] = "bash|zsh|fish";

constexpr char kExamples[] = R"(Examples:
  source <(drafthouse completion bash)                                      this shell only
  drafthouse completion bash > ~/.local/share/bash-completion/completions/drafthouse
  drafthouse completion zsh > "${fpath[1]}/_drafthouse"
  drafthouse completion fish > ~/.config/fish/completions/drafthouse.fish)";

// What can stand after an option.
struct Values {
  bool paths = false;
  std::vector<std::string> words;
  bool none() const { return !paths && words.empty(); }
};

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (text.ends_with(end)) return true;
  }
  return false;
}

Values values_of(const CLI::Option& option) {
  Values values;
  const std::string type = option.get_type_name();
  for (const std::string& word : CLI::detail::split(type, '|')) {
    if (ends_with_any(word, {"FILE", "FOLDER", "MODEL", "TARGET", "DRAFT"})) values.paths = true;
    const bool lower = word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos;
    if (lower && !word.empty()) values.words.push_back(word);
  }
  return values;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string joined(const std::vector<std::string>& words) { return CLI::detail::join(words, " "); }

// What completes a positional or an option's value in bash.
std::string bash_values(const Values& values) {
  std::string commands;
  if (!values.words.empty()) commands += fmt::format("words='{}' ", joined(values.words));
  if (values.paths) commands += "paths=yes ";
  return commands + ";;";
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> verbs;
  std::string values;
  std::string options;
  for (const CLI::App* verb : verbs_of(app)) {
    verbs.push_back(verb->get_name());
    std::vector<std::string> names;
    std::string positional;
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional()) positional = bash_values(values_of(*option));
      for (const std::string& name : names_of(*option)) {
        names.push_back(name);
        if (!takes_value(*option)) continue;
        values += fmt::format("    {}\\ {}) {}\n", verb->get_name(), name,
                              bash_values(values_of(*option)));
      }
    }
    options += fmt::format("      {}\\ -*) words='{}' ;;\n", verb->get_name(), joined(names));
    if (!positional.empty())
      options += fmt::format("      {}\\ *) {}\n", verb->get_name(), positional);
  }
  return fmt::format(R"(# drafthouse completion for bash: source <(drafthouse completion bash)
_drafthouse() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local verb=${{COMP_WORDS[1]}} words='' paths=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$current")
    return
  fi
  case "$verb $previous" in
{}    *)
      case "$verb $current" in
{}      esac ;;
  esac
  if [[ -n $words ]]; then mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); fi
  if [[ -n $paths ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -F _drafthouse drafthouse
)",
                     joined(verbs), values, options);
}

// `text` inside '…' where the shell's own '…' is outside: no quote, no bracket, no colon.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string zsh_values(const CLI::Option& option) {
  const Values values = values_of(option);
  const std::string what = zsh_text(option.get_type_name());
  if (values.paths) return fmt::format(":{}:_files", what);
  return fmt::format(":{}:({})", what, joined(values.words));
}

std::string zsh_script(const CLI::App& app) {
  std::string verbs;
  std::string cases;
  for (const CLI::App* verb : verbs_of(app)) {
    verbs += fmt::format("    '{}:{}'\n", verb->get_name(), zsh_text(verb->get_description()));
    cases += fmt::format("    {}) _arguments", verb->get_name());
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional()) cases += fmt::format(" \\\n      '1{}'", zsh_values(*option));
      for (const std::string& name : names_of(*option)) {
        cases += fmt::format(" \\\n      '{}[{}]{}'", name, zsh_text(option->get_description()),
                             takes_value(*option) ? zsh_values(*option) : "");
      }
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef drafthouse
# drafthouse completion for zsh: put it into a folder of $fpath as _drafthouse
_drafthouse() {{
  local -a verbs
  verbs=(
{})
  if ((CURRENT == 2)); then
    _describe -t verbs verb verbs
    _arguments '--help[Help]' '--version[Version]'
    return
  fi
  local verb=$words[2]
  shift words
  ((CURRENT--))
  case $verb in
{}  esac
}}
if [[ $funcstack[1] == _drafthouse ]]; then _drafthouse "$@"; else compdef _drafthouse drafthouse; fi
)",
                     verbs, cases);
}

std::string fish_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string fish_values(const Values& values) {
  if (values.paths) return " -r -F";
  return values.none() ? " -x" : fmt::format(" -x -a '{}'", joined(values.words));
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# drafthouse completion for fish\ncomplete -c drafthouse -f\n";
  for (const CLI::App* verb : verbs_of(app)) {
    text += fmt::format("complete -c drafthouse -n __fish_use_subcommand -a {} -d '{}'\n",
                        verb->get_name(), fish_text(verb->get_description()));
    const std::string inside =
        fmt::format("complete -c drafthouse -n '__fish_seen_subcommand_from {}'", verb->get_name());
    for (const CLI::Option* option : verb->get_options()) {
      const Values values = values_of(*option);
      if (option->get_positional()) {
        text +=
            inside + (values.paths ? " -F" : fmt::format(" -a '{}'", joined(values.words))) + "\n";
        continue;
      }
      for (const std::string& name : option->get_lnames()) {
        text += fmt::format("{} -l {}{} -d '{}'\n", inside, name,
                            takes_value(*option) ? fish_values(values) : "",
                            fish_text(option->get_description()));
      }
    }
  }
  return text;
}

int run_completion(const CLI::App& app, const CompletionOptions& options) {
  std::string script;
  if (options.shell == "bash") script = bash_script(app);
  if (options.shell == "zsh") script = zsh_script(app);
  if (options.shell == "fish") script = fish_script(app);
  return write_out(script);
}

}  // namespace

void add_completion(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* verb = app.add_subcommand("completion", "Print the completion script of a shell");
  verb->add_option("shell", options->shell, "Which shell")
      ->type_name(kShells)
      ->check(word_check(kShells))
      ->required();
  verb->footer(kExamples);
  verb->callback(
      [&run, &app, options] { run = [&app, options] { return run_completion(app, *options); }; });
}

}  // namespace drafthouse::cli
