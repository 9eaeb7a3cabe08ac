#include "engine/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "cli/machine.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "engine/cpu_share.h"
#include "engine/synthetic.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct BenchVerb {
  ModelOptions model;
  std::string shape;
  std::string format;
  std::string draft_format;
  std::uint32_t layers = 0;  // 0: the shape's
  std::vector<std::uint32_t> contexts = {0};
  bool quick = false;
  bool profile = false;
  bool json = false;
};

constexpr char kFormats[] = "bf16|q8_0|q4_0|q4_1|q4_k|q5_k|q6_k|mlx4|mlx8|f16|f32";
constexpr char kDefaultFormat[] = "q8_0";
constexpr char kDefaultShape[] = "qwen3-1.7b";
// What the default falls back to on a machine that has little memory.
constexpr char kSmallShape[] = "smollm2-135m";
// Attention state, scratch and the probe's memory come on top of the weights.
constexpr std::uint64_t kMemoryBeside = std::uint64_t{1} << 30;

constexpr char kExamples[] = R"(Examples:
  drafthouse bench
  drafthouse bench --shape qwen3-4b --format q4_0 --contexts 0,1024,4096
  drafthouse bench --shape qwen3-4b --draft-format q4_0
  drafthouse bench --shape qwen3-30b-a3b --format q4_k --layers 24
  drafthouse bench --model ./Qwen3-4B --draft ./Qwen3-4B-DFlash --json
  drafthouse bench --shape smollm2-135m --format q8_0 --quick --isa avx2

A shape is measured with random weights, so it needs no files; its draft has 5 layers of the same
shape. --packed-dir keeps weights of files, so it needs --model. roofline: max(weight bytes / read
bandwidth, operations / instruction peak) / time; 100 % is as fast as this machine can be. Times are
medians of interleaved rounds, and shares are of the bandwidth and the peaks that the same round
saw. A turn is draft, verify, accept and settle; plain is the pass of width 1. Where layers have
experts, how many of them a pass reads stands beside its width; random weights choose more alike
than trained ones.)";

// What --format takes besides the names of kinds.
constexpr std::pair<std::string_view, RowFormat> kNamedFormats[] = {
    {"mlx4", {Dtype::affine, 4, 64, Dtype::bf16}},
    {"mlx8", {Dtype::affine, 8, 64, Dtype::bf16}},
};

RowFormat format_named(const std::string& name) {
  for (const auto& [known, format] : kNamedFormats) {
    if (known == name) return format;
  }
  for (const Dtype dtype : {Dtype::bf16, Dtype::q8_0, Dtype::q4_0, Dtype::q4_1, Dtype::q4_k,
                            Dtype::q5_k, Dtype::q6_k, Dtype::f16, Dtype::f32}) {
    if (name_of(dtype) == name) return dtype;
  }
  return Dtype::q8_0;
}

BenchOptions bench_options(const BenchVerb& verb) {
  BenchOptions options;
  options.contexts = verb.contexts;
  options.profile = verb.profile;
  options.cancel = &interrupt_flag();
  if (verb.quick) {
    options.seconds_per_context = 0;
    options.prefill_tokens = 64;
  }
  return options;
}

Result<std::unique_ptr<Engine>> make_shape(const BenchVerb& verb, EngineOptions options,
                                           std::uint64_t memory_available) {
  SyntheticPair pair;
  pair.format = format_named(verb.format.empty() ? kDefaultFormat : verb.format);
  if (!verb.draft_format.empty()) pair.draft_format = format_named(verb.draft_format);
  pair.with_draft = !verb.model.no_draft;
  pair.memory_limit = memory_available - std::min(memory_available, kMemoryBeside);
  if (memory_available == 0) pair.memory_limit = 0;
  const auto choose = [&](const std::string& name) -> Status {
    Result<ModelConfig> config = published_shape(name);
    if (!config.ok()) return config.status();
    pair.name = fmt::format("{} {}", name, name_of(pair.format));
    pair.target = std::move(config).value();
    if (verb.layers > pair.target.layers) {
      return Status(Code::invalid_argument, fmt::format("{} has {} layers; --layers {} is more",
                                                        name, pair.target.layers, verb.layers));
    }
    if (verb.layers != 0) {
      pair.name += fmt::format(", {} of {} layers", verb.layers, pair.target.layers);
      pair.target.layers = verb.layers;
      if (!pair.target.layer_table.empty()) pair.target.layer_table.resize(verb.layers);
    }
    return {};
  };
  if (Status s = choose(verb.shape.empty() ? kDefaultShape : verb.shape); !s.ok()) return s;
  if (verb.shape.empty() && pair.memory_limit != 0 && packed_bytes(pair) > pair.memory_limit) {
    say(fmt::format("{} does not fit into memory; measuring {}", kDefaultShape, kSmallShape));
    if (Status s = choose(kSmallShape); !s.ok()) return s;
  }
  ProgressBar progress;
  options.progress = progress.callback();
  return make_synthetic_engine(pair, options);
}

Result<std::unique_ptr<Engine>> load(const BenchVerb& verb, const BenchOptions& bench,
                                     const Machine& machine) {
  const std::uint32_t context =
      *std::max_element(verb.contexts.begin(), verb.contexts.end()) + bench_room(bench);
  if (!verb.model.target.empty()) {
    ModelOptions model = verb.model;
    model.context = context;
    return load_engine(model);
  }
  EngineOptions options;
  options.threads = verb.model.threads;
  options.isa = verb.model.isa;
  options.hook_plugins = verb.model.hook_plugins;
  options.compute_fp32 = verb.model.compute == "fp32";
  options.prefill_chunk = verb.model.prefill_chunk;
  options.draft_window = verb.model.draft_window.value_or(kDraftWindow);
  options.draft_sink = verb.model.draft_sink.value_or(kDraftSink);
  options.context = context;
  options.cancel = &interrupt_flag();
  return make_shape(verb, options, machine.memory_available);
}

json describe(const OperationTime& operation) {
  json object = {
      {"name", operation.name}, {"calls", operation.calls}, {"ms", operation.seconds * 1e3}};
  if (operation.weight_bytes != 0) {
    object["outputs"] = operation.outputs;
    object["inputs"] = operation.inputs;
    object["gbps"] = static_cast<double>(operation.weight_bytes) / operation.seconds / 1e9;
  }
  return object;
}

json describe(const BenchContext& context) {
  json widths = json::array();
  for (const BenchWidth& w : context.widths) {
    json& width = widths.emplace_back(json{{"width", w.width},
                                           {"ms", w.ms},
                                           {"ratio", w.ratio},
                                           {"bandwidth_share", w.bandwidth_share},
                                           {"gops", w.gops},
                                           {"roofline_share", w.roofline_share}});
    if (w.experts > 0) width["experts"] = w.experts;
  }
  const bool drafts = context.turn_width != 0;
  const auto drafted = [&](double value) { return drafts ? json(value) : json(nullptr); };
  return {{"context", context.context},
          {"rounds", context.rounds},
          {"widths", widths},
          {"step_ms", context.step_ms},
          {"outside_kernels_share", context.outside_kernels_share},
          {"turn_width", drafts ? json(context.turn_width) : json(nullptr)},
          {"draft_ms", drafted(context.draft_ms)},
          {"turn_ms", drafted(context.turn_ms)},
          {"turn_ratio", drafted(context.turn_ratio)},
          {"turn_over_parts", drafted(context.turn_over_parts)},
          {"prefill_tokens", context.prefill_tokens},
          {"prefill_tok_s", context.prefill_tok_s},
          {"prefill_peak_share", context.prefill_peak_share}};
}

json describe(const BenchReport& report, const EngineInfo& info, const Machine& machine) {
  json contexts = json::array();
  for (const BenchContext& context : report.contexts) contexts.push_back(describe(context));
  json memory = json::object();
  for (const auto& [name, bytes] : report.memory) memory[name] = bytes;
  json object = {
      {"model", {{"target", info.target}, {"draft", info.draft}, {"weights", info.weights}}},
      {"cpu", {{"isa", info.isa}, {"threads", info.threads}, {"model", machine.cpu}}},
      {"hooks", describe_hooks<json>(info.hooks)},
      {"bandwidth_gbps",
       {{"before", report.bandwidth_before_gbps},
        {"during", report.bandwidth_during_gbps},
        {"after", report.bandwidth_after_gbps}}},
      {"peak_gops",
       {{"float", report.peak_float_gops},
        {"fp32", report.peak_fp32_gops},
        {"int8", report.peak_int8_gops},
        {"float_during", report.peak_float_during_gops},
        {"int8_during", report.peak_int8_during_gops}}},
      {"cpu_share", report.cpu_share},
      {"busy", is_busy(report.cpu_share)},
      {"weight_bytes", report.weight_bytes},
      {"operations_per_row", report.operations_per_row},
      {"contexts", contexts},
      {"memory", memory}};
  for (const BenchProfile& profile : report.profiles) {
    json operations = json::array();
    for (const OperationTime& operation : profile.operations) {
      operations.push_back(describe(operation));
    }
    object["profiles"].push_back({{"context", profile.context},
                                  {"pass", profile.pass},
                                  {"ms", profile.ms},
                                  {"operations", operations}});
  }
  return object;
}

std::string table(const BenchContext& context) {
  const bool experts = !context.widths.empty() && context.widths.front().experts > 0;
  std::string text =
      fmt::format("\ncontext {} ({} rounds)\n{:>7}{:>10}{:>8}{:>11}{:>9}{:>10}{}\n",
                  context.context, context.rounds, "width", "ms", "ratio", "bandwidth", "GOP/s",
                  "roofline", experts ? "   experts a layer" : "");
  for (const BenchWidth& w : context.widths) {
    text += fmt::format("{:>7}{:>10.2f}{:>8.2f}{:>9.0f} %{:>9.0f}{:>8.0f} %", w.width, w.ms,
                        w.ratio, w.bandwidth_share * 100, w.gops, w.roofline_share * 100);
    text += experts ? fmt::format("{:>18.1f}\n", w.experts) : "\n";
  }
  if (context.turn_width != 0) {
    text += fmt::format(
        "  draft {:.2f} ms; turn of width {}: {:.2f} ms = {:.2f} x plain = {:.2f} x (draft + "
        "verify)\n",
        context.draft_ms, context.turn_width, context.turn_ms, context.turn_ratio,
        context.turn_over_parts);
  }
  text +=
      fmt::format("  prefill of {} tokens: {:.1f} tok/s, {:.0f} % of the instruction peak\n",
                  context.prefill_tokens, context.prefill_tok_s, context.prefill_peak_share * 100);
  text += fmt::format("  plain turn {:.2f} ms, {:.1f} % of it outside kernels\n", context.step_ms,
                      context.outside_kernels_share * 100);
  return text;
}

std::string table(const BenchProfile& profile) {
  std::string text =
      fmt::format("\n{} at context {}: {:.3f} ms\n", profile.pass, profile.context, profile.ms);
  double inside = 0;
  for (const OperationTime& operation : profile.operations) {
    const double ms = operation.seconds * 1e3;
    inside += ms;
    std::string name(operation.name);
    std::string rate;
    if (operation.weight_bytes != 0) {
      name += fmt::format(" {} -> {}", operation.inputs, operation.outputs);
      rate = fmt::format("{:.1f} GB/s",
                         static_cast<double>(operation.weight_bytes) / operation.seconds / 1e9);
    }
    text += fmt::format("  {:<24}{:>5} x{:>10.3f} ms{:>7.1f} %  {}\n", name, operation.calls, ms,
                        100 * ms / profile.ms, rate);
  }
  text += fmt::format("  {:<24}{:>7}{:>10.3f} ms{:>7.1f} %\n", "outside", "", profile.ms - inside,
                      100 * (1 - inside / profile.ms));
  return text;
}

std::string report_text(const BenchReport& report, const EngineInfo& info, const Machine& machine) {
  const auto row = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<12}{}\n", name, value);
  };
  std::string text = row("model", info.target);
  text += row("draft", info.draft.empty() ? "none" : info.draft);
  text +=
      row("cpu", fmt::format("{}, {} kernels, {} threads", machine.cpu, info.isa, info.threads));
  for (const EngineHook& hook : info.hooks) {
    text += row("hook", fmt::format("{} by {} {}", hook.operation, hook.name, hook.version));
  }
  text += row("bandwidth", fmt::format("{:.1f} GB/s before, {:.1f} during, {:.1f} after",
                                       report.bandwidth_before_gbps, report.bandwidth_during_gbps,
                                       report.bandwidth_after_gbps));
  text += row("peaks",
              fmt::format("float {:.0f}, fp32 {:.0f}, int8 {:.0f} GOP/s; during, float {:.0f}, "
                          "int8 {:.0f}",
                          report.peak_float_gops, report.peak_fp32_gops, report.peak_int8_gops,
                          report.peak_float_during_gops, report.peak_int8_during_gops));
  text += row("a pass", fmt::format("reads {:.3f} GB of weights, {:.2f} GOP a row",
                                    static_cast<double>(report.weight_bytes) / 1e9,
                                    static_cast<double>(report.operations_per_row) / 1e9));
  for (const BenchContext& context : report.contexts) text += table(context);
  for (const BenchProfile& profile : report.profiles) text += table(profile);
  text += "\n";
  for (const auto& [name, bytes] : report.memory) {
    text += row(name, fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6));
  }
  return text;
}

int run_verb(const BenchVerb& verb) {
  interrupt_flag();
  const Machine machine = look_at_machine();
  BenchOptions options = bench_options(verb);
  Result<std::unique_ptr<Engine>> engine = load(verb, options, machine);
  if (!engine.ok()) return fail(engine.status(), verb.json);

  StageLine stage;
  options.progress = [&stage](std::string_view what) {
    stage.show(fmt::format("measuring: {}", what));
  };
  const Result<BenchReport> report = run_bench(engine.value()->internals(), options);
  options.progress = {};
  if (!report.ok()) return fail(report.status(), verb.json);
  const EngineInfo& info = engine.value()->info();
  if (is_busy(report.value().cpu_share)) {
    say(
        fmt::format("this machine is busy: {} threads got {:.0f} % of the time of their processors "
                    "while they were timed, the figures are too low",
                    info.threads, 100 * report.value().cpu_share));
  }
  if (verb.json) return print_json(describe(report.value(), info, machine), kOk);
  return write_out(report_text(report.value(), info, machine));
}

}  // namespace

void add_bench(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<BenchVerb>();
  CLI::App* verb = app.add_subcommand("bench", "How fast a model runs here, and how fast it could");
  CLI::Option* model = verb->add_option("--model", options->model.target,
                                        "Target: a folder, a .gguf file, or a cached hub id")
                           ->type_name("TARGET");
  add_draft_options(*verb, options->model);
  std::string shapes;
  for (const std::string_view name : published_shapes()) {
    shapes.append(shapes.empty() ? "" : "|").append(name);
  }
  verb->add_option("--shape", options->shape,
                   "Random weights in the sizes of a published model [qwen3-1.7b]")
      ->type_name(shapes)
      ->check(word_check(shapes))
      ->excludes(model);
  verb->add_option("--format", options->format, "Of a shape's weights [q8_0]")
      ->type_name(kFormats)
      ->check(word_check(kFormats))
      ->excludes(model);
  verb->add_option("--draft-format", options->draft_format, "Of its draft's weights [the same]")
      ->type_name(kFormats)
      ->check(word_check(kFormats))
      ->excludes(model);
  verb->add_option("--layers", options->layers,
                   "Only so many of its layers, where memory is short [all]")
      ->type_name("N")
      ->check(number_check(1, 1024))
      ->excludes(model);
  verb->get_option("--draft")->needs(model)->excludes(verb->get_option("--no-draft"));
  verb->add_option("--contexts", options->contexts,
                   "Positions that the state holds, separated by commas [0]")
      ->type_name("N,N")
      ->delimiter(',')
      ->check(number_check(0, kPositionsMax));
  verb->add_flag("--quick", options->quick, "Three rounds and a short prefill");
  verb->add_flag("--profile", options->profile, "Also show what each operation takes");
  add_compute_options(*verb, options->model);
  verb->remove_option(verb->get_option("--context"));
  verb->get_option("--packed-dir")->needs(model);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_verb(*options); }; });
}

}  // namespace drafthouse::cli
