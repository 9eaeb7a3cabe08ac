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

// What `bash_script` collects over the verbs.
struct BashCases {
  std::string below;    // verbs that have verbs of their own
  std::string values;   // by verb and the option before
  std::string options;  // by verb and the word that is typed
};

// `name`: the verb and those above it, as the shell's patterns spell them.
void add_bash_cases(const CLI::App& verb, const std::string& name, BashCases& cases) {
  std::vector<std::string> names;
  std::string positional;
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) positional = bash_values(values_of(*option));
    for (const std::string& option_name : names_of(*option)) {
      names.push_back(option_name);
      if (!takes_value(*option)) continue;
      cases.values +=
          fmt::format("    {}\\ {}) {}\n", name, option_name, bash_values(values_of(*option)));
    }
  }
  cases.options += fmt::format("      {}\\ -*) words='{}' ;;\n", name, joined(names));
  if (!positional.empty()) cases.options += fmt::format("      {}\\ *) {}\n", name, positional);
  std::vector<std::string> below;
  for (const CLI::App* sub : verbs_of(verb)) {
    below.push_back(sub->get_name());
    add_bash_cases(*sub, fmt::format("{}\\ {}", name, sub->get_name()), cases);
  }
  if (below.empty()) return;
  cases.below += fmt::format("    {}) below='{}' ;;\n", name, joined(below));
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> verbs;
  BashCases cases;
  for (const CLI::App* verb : verbs_of(app)) {
    verbs.push_back(verb->get_name());
    add_bash_cases(*verb, verb->get_name(), cases);
  }
  return fmt::format(R"(# drafthouse completion for bash: source <(drafthouse completion bash)
_drafthouse() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local verb=${{COMP_WORDS[1]}} below='' words='' paths=''
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$current")
    return
  fi
  case $verb in
{}  esac
  if [[ -n $below ]]; then
    if ((COMP_CWORD == 2)); then
      mapfile -t COMPREPLY < <(compgen -W "$below --help" -- "$current")
      return
    fi
    verb+=" ${{COMP_WORDS[2]}}"
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
                     joined(verbs), cases.below, cases.values, cases.options);
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

// "    'ls:What it does'" for every verb directly below.
std::string zsh_verbs(const CLI::App& app) {
  std::string verbs;
  for (const CLI::App* verb : verbs_of(app)) {
    verbs += fmt::format("    '{}:{}'\n", verb->get_name(), zsh_text(verb->get_description()));
  }
  return verbs;
}

std::string zsh_arguments(const CLI::App& verb) {
  std::string words = "_arguments";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_positional()) words += fmt::format(" \\\n      '1{}'", zsh_values(*option));
    for (const std::string& name : names_of(*option)) {
      words += fmt::format(" \\\n      '{}[{}]{}'", name, zsh_text(option->get_description()),
                           takes_value(*option) ? zsh_values(*option) : "");
    }
  }
  return words;
}

// The case of a verb, in the words after it.
std::string zsh_case(const CLI::App& verb) {
  const std::vector<const CLI::App*> below = verbs_of(verb);
  if (below.empty()) return fmt::format("    {}) {} ;;\n", verb.get_name(), zsh_arguments(verb));
  std::string cases;
  for (const CLI::App* sub : below) cases += zsh_case(*sub);
  return fmt::format(R"(    {})
      if ((CURRENT == 2)); then
        verbs=(
{})
        _describe -t verbs verb verbs
        return
      fi
      verb=$words[2]
      shift words
      ((CURRENT--))
      case $verb in
{}      esac ;;
)",
                     verb.get_name(), zsh_verbs(verb), cases);
}

std::string zsh_script(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* verb : verbs_of(app)) cases += zsh_case(*verb);
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
                     zsh_verbs(app), cases);
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

// `above`: fish's condition for the verbs above; `first`: for when this one is typed next.
std::string fish_verb(const CLI::App& verb, const std::string& above, const std::string& first) {
  std::string text = fmt::format("complete -c drafthouse -n '{}' -a {} -d '{}'\n", first,
                                 verb.get_name(), fish_text(verb.get_description()));
  const std::string inside = above + "__fish_seen_subcommand_from " + verb.get_name();
  const std::vector<const CLI::App*> below = verbs_of(verb);
  std::vector<std::string> names;
  for (const CLI::App* sub : below) names.push_back(sub->get_name());
  for (const CLI::App* sub : below) {
    text +=
        fish_verb(*sub, inside + "; and ",
                  fmt::format("{}; and not __fish_seen_subcommand_from {}", inside, joined(names)));
  }
  for (const CLI::Option* option : verb.get_options()) {
    const Values values = values_of(*option);
    const std::string line = fmt::format("complete -c drafthouse -n '{}'", inside);
    if (option->get_positional()) {
      text += line + (values.paths ? " -F" : fmt::format(" -a '{}'", joined(values.words))) + "\n";
      continue;
    }
    for (const std::string& name : option->get_lnames()) {
      text += fmt::format("{} -l {}{} -d '{}'\n", line, name,
                          takes_value(*option) ? fish_values(values) : "",
                          fish_text(option->get_description()));
    }
  }
  return text;
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# drafthouse completion for fish\ncomplete -c drafthouse -f\n";
  for (const CLI::App* verb : verbs_of(app)) text += fish_verb(*verb, "", "__fish_use_subcommand");
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
