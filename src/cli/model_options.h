#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/engine.h"
#include "engine/internals.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace drafthouse::cli {

inline constexpr std::uint32_t kPositionsMax = 1u << 30;

// The options by which every verb that runs a model names it and how to run it.
struct ModelOptions {
  std::string target;
  std::string draft;
  bool no_draft = false;
  std::uint32_t threads = 0;
  std::string compute = "auto";
  std::string isa;
  std::uint32_t context = 0;
  std::uint32_t prefill_chunk = 0;
  std::optional<std::uint32_t> draft_window;
  std::optional<std::uint32_t> draft_sink;
  std::string packed_directory;
  std::vector<std::string> hook_plugins;
};

// For ->check(): any value but the empty one; `what` is the thing that it names ("a folder").
CLI::Validator not_empty(std::string_view what);
// For ->check(): a decimal number in [lowest, highest]; one of the words in "one|two".
CLI::Validator number_check(std::uint32_t lowest, std::uint32_t highest);
CLI::Validator word_check(std::string_view words);

// --model, required.
void add_target_option(CLI::App& verb, ModelOptions& options);
// --draft, --no-draft.
void add_draft_options(CLI::App& verb, ModelOptions& options);
// --threads, --compute, --isa, --context, --prefill-chunk, --packed-dir, --hook-plugin.
void add_compute_options(CLI::App& verb, ModelOptions& options);
// --hook-plugin, which may be repeated.
void add_hook_option(CLI::App& verb, std::vector<std::string>& paths);
// --width N, or also "auto".
enum class WidthKind { number, number_or_auto };
void add_width_option(CLI::App& verb, std::string& width, WidthKind kind, const char* text);

// The number in --width, whose spelling CLI11 has checked; 0 for "auto" and for "".
std::uint32_t width_of(const std::string& width);

// {"operation", "name", "version", "exact", "widths"} of each.
template <class Json>
Json describe_hooks(const std::vector<EngineHook>& hooks) {
  Json list = Json::array();
  for (const EngineHook& hook : hooks) {
    list.push_back({{"operation", hook.operation},
                    {"name", hook.name},
                    {"version", hook.version},
                    {"exact", hook.exact},
                    {"widths", hook.widths}});
  }
  return list;
}

// What is wrong with the choice of draft and width, or "".
std::string pair_refusal(const ModelOptions& options, const std::string& width);

// Says which options change nothing, on standard error.
void tell_idle(const ModelOptions& options);

// Loads what the options name, with a progress bar; ends when a signal comes. `target`: what they
// name, opened.
Result<std::unique_ptr<Engine>> load_engine(OpenedTarget target, const ModelOptions& options,
                                            const std::optional<CacheConfig>& cache = {});
Result<std::unique_ptr<Engine>> load_engine(const ModelOptions& options);

}  // namespace drafthouse::cli
