#include "cli/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "formats/checkpoint.h"
#include "kernels/isa.h"
#include "model/draft_context.h"

namespace drafthouse::cli {
namespace {

constexpr std::uint32_t kThreadsMax = 1024;
// No draft has a block near this; what the loaded one allows is checked against its block size.
constexpr std::uint32_t kWidthMax = 65536;

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

CLI::Validator window_check() {
  return CLI::Validator(
      [](const std::string& value) -> std::string {
        const std::optional<std::uint32_t> number = parse_number(value);
        const bool known = number.has_value() && *number <= kPositionsMax &&
                           (*number == 0 || *number >= DraftContext::kWindowMin);
        if (known) return "";
        return fmt::format("'{}' is not 0 or a number from {} to {}", value,
                           DraftContext::kWindowMin, kPositionsMax);
      },
      "");
}

}  // namespace

CLI::Validator not_empty(std::string_view what) {
  return CLI::Validator(
      [what = std::string(what)](const std::string& value) -> std::string {
        return value.empty() ? fmt::format("it is empty; give {}, or leave the option out", what)
                             : "";
      },
      "");
}

CLI::Validator number_check(std::uint32_t lowest, std::uint32_t highest) {
  const auto refuse = [lowest, highest](const std::string& value) -> std::string {
    const std::optional<std::uint32_t> number = parse_number(value);
    if (number.has_value() && *number >= lowest && *number <= highest) return "";
    return fmt::format("'{}' is not a number from {} to {}", value, lowest, highest);
  };
  return CLI::Validator(refuse, "");
}

CLI::Validator word_check(std::string_view words) {
  const auto refuse = [words = std::string(words)](const std::string& value) -> std::string {
    const bool known = !value.empty() && value.find('|') == std::string::npos &&
                       ("|" + words + "|").find("|" + value + "|") != std::string::npos;
    return known ? "" : fmt::format("'{}' is not one of {}", value, words);
  };
  return CLI::Validator(refuse, "");
}

void add_target_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--model", options.target,
                  "Target: a Hugging Face folder, a .gguf file, or a hub id in the local cache")
      ->type_name("TARGET")
      ->required();
}

void add_draft_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--draft", options.draft, "DFlash draft of the target, named in the same ways")
      ->type_name("DRAFT");
  verb.add_flag("--no-draft", options.no_draft,
                "Decode plainly (also what happens without --draft)");
  verb.add_option(
          "--draft-window", options.draft_window,
          fmt::format("Last positions that the draft keeps, 0 for all; ids are the same [{}]",
                      kDraftWindow))
      ->type_name("N")
      ->check(window_check());
  verb.add_option("--draft-sink", options.draft_sink,
                  fmt::format("First positions that the draft keeps besides [{}]", kDraftSink))
      ->type_name("N")
      ->check(number_check(0, kPositionsMax));
}

void add_compute_options(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--threads", options.threads, "Compute threads [one per core]")
      ->type_name("N")
      ->check(number_check(1, kThreadsMax));
  verb.add_option("--compute", options.compute,
                  "fp32: activations and state in fp32, slower [auto: what suits the weights]")
      ->type_name("auto|fp32")
      ->check(word_check("auto|fp32"));
  std::string isas;
  for (const Isa isa : built_isas()) isas.append(isas.empty() ? "" : "|").append(name_of(isa));
  verb.add_option("--isa", options.isa, "Kernels to use [the best for this CPU]")
      ->type_name(isas)
      ->check(word_check(isas));
  verb.add_option("--context", options.context, "Positions at most [what the model was made for]")
      ->type_name("N")
      ->check(number_check(1, kPositionsMax));
  verb.add_option("--prefill-chunk", options.prefill_chunk,
                  "Prompt tokens per pass; results do not depend on it [chosen]")
      ->type_name("N")
      ->check(number_check(1, kPositionsMax));
  verb.add_option(
          "--packed-dir", options.packed_directory,
          "Private folder that keeps the weights as they lie in memory, for a quick next start "
          "[none]")
      ->type_name("DIR")
      ->check(not_empty("a folder"));
  add_hook_option(verb, options.hook_plugins);
}

void add_hook_option(CLI::App& verb, std::vector<std::string>& paths) {
  const auto refuse = [](const std::string& path) -> std::string {
    return path.starts_with('/') ? "" : fmt::format("'{}' is not an absolute path", path);
  };
  verb.add_option("--hook-plugin", paths,
                  "Shared library that replaces operations (docs/HOOKS.md), by absolute path; may "
                  "be repeated")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->check(CLI::Validator(refuse, ""));
}

void add_width_option(CLI::App& verb, std::string& width, WidthKind kind, const char* text) {
  const bool with_auto = kind == WidthKind::number_or_auto;
  const auto refuse = [with_auto](const std::string& value) -> std::string {
    if (with_auto && value == "auto") return "";
    const std::optional<std::uint32_t> number = parse_number(value);
    if (number.has_value() && *number >= 1 && *number <= kWidthMax) return "";
    return fmt::format("'{}' is not {}a number from 1 to {}", value, with_auto ? "auto or " : "",
                       kWidthMax);
  };
  verb.add_option("--width", width, text)
      ->type_name(with_auto ? "N|auto" : "N")
      ->check(CLI::Validator(refuse, ""));
}

std::uint32_t width_of(const std::string& width) { return parse_number(width).value_or(0); }

void tell_idle(const ModelOptions& options) {
  if (!options.draft.empty()) return;
  if (!options.draft_window.has_value() && !options.draft_sink.has_value()) return;
  say(fmt::format("{} changes nothing without a draft: it says what a draft keeps",
                  options.draft_window.has_value() ? "--draft-window" : "--draft-sink"));
}

std::string pair_refusal(const ModelOptions& options, const std::string& width_text) {
  if (options.no_draft && !options.draft.empty())
    return "--draft and --no-draft exclude each other";
  const std::uint32_t width = width_of(width_text);
  if (width <= 1 || options.draft.empty()) return "";
  // A draft that cannot be read is told by loading it.
  const Result<Checkpoint> draft = Checkpoint::open(options.draft);
  if (!draft.ok()) return "";
  const Result<DraftConfig> config = draft.value().draft_config();
  if (!config.ok() || width <= config.value().block_size) return "";
  return fmt::format("--width {} is more than the draft's block size {}: use 1 to {}, or auto",
                     width, config.value().block_size, config.value().block_size);
}

Result<std::unique_ptr<Engine>> load_engine(const ModelOptions& options) {
  Result<OpenedTarget> target = open_target(options.target);
  if (!target.ok()) return target.status();
  return load_engine(std::move(target).value(), options);
}

Result<std::unique_ptr<Engine>> load_engine(OpenedTarget target, const ModelOptions& options,
                                            const std::optional<CacheConfig>& cache) {
  ProgressBar progress;
  EngineOptions engine;
  engine.target = options.target;
  engine.draft = options.draft;
  engine.threads = options.threads;
  engine.compute_fp32 = options.compute == "fp32";
  engine.context = options.context;
  engine.prefill_chunk = options.prefill_chunk;
  engine.draft_window = options.draft_window.value_or(kDraftWindow);
  engine.draft_sink = options.draft_sink.value_or(kDraftSink);
  engine.isa = options.isa;
  engine.packed_directory = options.packed_directory;
  engine.hook_plugins = options.hook_plugins;
  engine.cache = cache;
  engine.log = [](std::string_view line) { say(line); };
  engine.progress = progress.callback();
  engine.cancel = &interrupt_flag();
  return load_opened(std::move(target), engine);
}

}  // namespace drafthouse::cli
