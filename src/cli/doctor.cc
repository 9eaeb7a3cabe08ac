#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cli/machine.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/repository.h"
#include "cli/verb.h"
#include "engine/engine_hooks.h"
#include "engine/probe.h"
#include "formats/hub.h"
#include "formats/printable.h"
#include "kernels/kernels.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct DoctorOptions {
  std::vector<std::string> hook_plugins;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse doctor
  drafthouse doctor --json
  drafthouse doctor --hook-plugin /opt/hooks/example.so

The speed is measured in about a second; run it while the machine does nothing else.)";

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMemoryLow = std::uint64_t{1} << 30;
constexpr std::uint64_t kOpenFilesLow = 256;

// The default pair of this repository, a file that is not there left empty.
KnownPair find_default_pair() {
  KnownPair pair = default_pair(repository_root());
  std::error_code error;
  for (std::string* path : {&pair.target, &pair.draft}) {
    if (!fs::exists(*path, error)) path->clear();
  }
  return pair;
}

std::string joined(const std::vector<std::string>& words) { return CLI::detail::join(words, " "); }

std::vector<std::string> advice(const Machine& machine, bool has_model) {
  std::vector<std::string> list;
  if (best_isa() == Isa::generic) {
    list.emplace_back(
        "only the generic kernels run on this CPU, and they are slow: use one with AVX2");
  }
  if (machine.cores_usable < machine.cores_online) {
    list.push_back(
        fmt::format("this process may use {} of {} cores (taskset, cpuset or a container)",
                    machine.cores_usable, machine.cores_online));
  }
  if (machine.huge_pages == "never") {
    list.emplace_back(
        "huge pages are off, which makes reading weights slower: as root, "
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
  }
  if (machine.memory_available < kMemoryLow) {
    list.emplace_back("less than 1 GB of memory is free: only small models will load");
  }
  if (machine.open_files_limit < kOpenFilesLow) {
    list.emplace_back("few files may be open, too few for a model in many shards: ulimit -n 1024");
  }
  if (!has_model) {
    list.emplace_back("no model was found: tools/fetch_default_model fetches a small one");
  }
  return list;
}

json describe(const Machine& machine) {
  json isas = json::array();
  for (const IsaState& state : machine.isas) {
    isas.push_back({{"isa", name_of(state.isa)},
                    {"usable", state.usable},
                    {"missing", state.missing},
                    {"chosen", state.isa == best_isa()}});
  }
  const auto limit = [](std::uint64_t value) {
    return value == kNoLimit ? json(nullptr) : json(value);
  };
  return {{"cpu", {{"model", machine.cpu}, {"features", machine.features}}},
          {"isa", {{"chosen", name_of(best_isa())}, {"built", isas}}},
          {"cores", {{"online", machine.cores_online}, {"usable", machine.cores_usable}}},
          {"memory", {{"total", machine.memory_total}, {"available", machine.memory_available}}},
          {"huge_pages", machine.huge_pages},
          {"limits",
           {{"locked_memory", limit(machine.locked_memory_limit)},
            {"open_files", limit(machine.open_files_limit)}}}};
}

// What the chosen kernels reach here with all threads. Empty when there is no memory to measure
// with.
struct Speed {
  double bandwidth_gbps = 0;
  double float_gops = 0;
  double int8_gops = 0;
};

std::optional<Speed> measure() {
  MemoryLedger ledger;
  ThreadPool pool(0);
  const Kernels& kernels = kernels_for(best_isa());
  const Result<Buffer> memory = make_probe_memory(pool, ledger);
  if (!memory.ok()) return std::nullopt;
  return Speed{.bandwidth_gbps = read_bandwidth_gbps(pool, kernels, memory.value()),
               .float_gops = peak_float_gops(pool, kernels),
               .int8_gops = peak_int8_gops(pool, kernels)};
}

std::string report(const Machine& machine) {
  const auto row = [](std::string_view name, std::string_view value) {
    return fmt::format("{:<14}{}\n", name, value);
  };
  const auto size_text = [](std::uint64_t bytes) {
    return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6)
                                 : fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
  };
  std::string text = row("CPU", machine.cpu.empty() ? "unknown" : printable(machine.cpu));
  text += row("features", joined(machine.features));
  for (const IsaState& state : machine.isas) {
    std::string what = "usable";
    if (state.isa == best_isa()) what = "chosen";
    if (!state.usable) {
      what = state.missing.empty() ? "switched off by the system"
                                   : "not on this CPU: lacks " + joined(state.missing);
    }
    text += row("kernels", fmt::format("{:<12}{}", name_of(state.isa), what));
  }
  text += row("cores", fmt::format("{} usable of {} online; that many threads are the default",
                                   machine.cores_usable, machine.cores_online));
  text += row("memory", fmt::format("{} free of {}", size_text(machine.memory_available),
                                    size_text(machine.memory_total)));
  text += row("huge pages", machine.huge_pages.empty() ? "unknown" : machine.huge_pages);
  text += row("limits", fmt::format("locked memory {}, open files {}",
                                    machine.locked_memory_limit == kNoLimit
                                        ? "unlimited"
                                        : size_text(machine.locked_memory_limit),
                                    machine.open_files_limit));
  return text;
}

json hook_interface(const std::vector<EngineHook>& hooks) {
  json operations = json::array();
  for (const HookSlot slot : HookSlot::all()) operations.push_back(slot.name());
  return {{"abi_version", DH_HOOK_ABI_VERSION},
          {"operations", operations},
          {"installed", describe_hooks<json>(hooks)}};
}

int run_doctor(const DoctorOptions& options) {
  // Plugins go through the gate as at a load; one that is refused ends here.
  std::vector<EngineHook> hooks;
  EngineOptions plugins;
  plugins.hook_plugins = options.hook_plugins;
  const Result<EngineHooks> bound = bind_hooks(plugins, hooks);
  if (!bound.ok()) return fail(bound.status(), options.json);
  const Machine machine = look_at_machine();
  const std::optional<Speed> speed = measure();
  const KnownPair pair = find_default_pair();
  const std::vector<std::string> cached = cached_models();
  const std::vector<std::string> hints = advice(machine, !pair.target.empty() || !cached.empty());
  if (options.json) {
    json object = describe(machine);
    const auto path = [](const std::string& text) {
      return text.empty() ? json(nullptr) : json(text);
    };
    object["models"] = {{"default_target", path(pair.target)},
                        {"default_draft", path(pair.draft)},
                        {"hub_cache", cached}};
    if (speed.has_value()) {
      object["bandwidth_gbps"] = speed->bandwidth_gbps;
      object["peak_gops"] = {{"float", speed->float_gops}, {"int8", speed->int8_gops}};
    }
    object["hooks"] = hook_interface(hooks);
    object["advice"] = hints;
    return print_json(object, kOk);
  }
  std::string text = report(machine);
  if (speed.has_value()) {
    text += fmt::format(
        "{:<14}reads {:.1f} GB/s; at most {:.0f} GFLOP/s (bf16 or fp32), {:.0f} GOP/s (int8)\n",
        "speed", speed->bandwidth_gbps, speed->float_gops, speed->int8_gops);
  }
  if (hooks.empty()) text += fmt::format("{:<14}none installed\n", "hooks");
  for (const EngineHook& hook : hooks) {
    text += fmt::format("{:<14}{} by {} {}, {}, widths {}\n", "hook", hook.operation, hook.name,
                        hook.version, hook.exact ? "exact" : "approximate", hook.widths);
  }
  text +=
      fmt::format("{:<14}{}\n", "default model", pair.target.empty() ? "not fetched" : pair.target);
  text += fmt::format("{:<14}{}\n", "default draft", pair.draft.empty() ? "none" : pair.draft);
  for (const std::string& id : cached)
    text += fmt::format("{:<14}{}\n", "hub cache", printable(id));
  for (const std::string& hint : hints) text += fmt::format("{:<14}{}\n", "advice", hint);
  return write_out(text);
}

}  // namespace

void add_doctor(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* verb =
      app.add_subcommand("doctor", "What this machine has, and what would make it faster");
  add_hook_option(*verb, options->hook_plugins);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_doctor(*options); }; });
}

}  // namespace drafthouse::cli
