#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "drafthouse/engine.h"

namespace drafthouse::cli {
namespace {

struct ScoreOptions {
  ModelOptions model;
  std::string ids_file;
  std::string width;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  drafthouse score --model ./Qwen3-4B --ids ids.json --json
  drafthouse tokenize --model ./Qwen3-4B < text.txt | drafthouse score --model ./Qwen3-4B --ids -

logprob and top have one entry per id after the first: the natural logarithm of the id's probability
after all ids before it, and the id that was most likely there.)";

std::size_t hits(const std::vector<std::uint32_t>& ids, const std::vector<std::uint32_t>& top) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < top.size(); ++i) count += top[i] == ids[i + 1] ? 1 : 0;
  return count;
}

int run_score(const ScoreOptions& options) {
  Result<std::vector<std::uint32_t>> ids = read_ids(options.ids_file);
  if (!ids.ok()) return fail(ids.status(), options.json);
  if (ids.value().size() < 2) {
    return fail(Status(Code::invalid_argument,
                       fmt::format("{}: {} ids; scoring needs at least two",
                                   input_name(options.ids_file), ids.value().size())),
                options.json);
  }
  ModelOptions model = options.model;
  model.prefill_chunk = width_of(options.width);  // a pass has room for so many rows
  Result<std::unique_ptr<Engine>> engine = load_engine(model);
  if (!engine.ok()) return fail(engine.status(), options.json);

  ScoreRequest request;
  request.ids = std::move(ids).value();
  request.width = width_of(options.width);
  request.cancel = &interrupt_flag();
  const Result<ScoreResult> scored = engine.value()->score(request);
  if (!scored.ok()) return fail(scored.status(), options.json);

  const ScoreResult& result = scored.value();
  const double sum = std::accumulate(result.logprob.begin(), result.logprob.end(), 0.0);
  const double mean = sum / static_cast<double>(result.logprob.size());
  if (options.json) {
    return print_json(
        nlohmann::ordered_json{
            {"logprob", result.logprob}, {"top", result.top}, {"perplexity", std::exp(-mean)}},
        kOk);
  }
  const std::string text =
      fmt::format("{} ids scored: perplexity {:.4f}, mean logprob {:.4f}, {} of {} most likely\n",
                  result.logprob.size(), std::exp(-mean), mean, hits(request.ids, result.top),
                  result.top.size());
  return write_out(text);
}

}  // namespace

void add_score(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* verb = app.add_subcommand("score", "How likely a model finds the tokens of a text");
  add_target_option(*verb, options->model);
  verb->add_option("--ids", options->ids_file, "A JSON list of token ids; - is standard input")
      ->type_name("FILE")
      ->required();
  add_width_option(*verb, options->width, WidthKind::number,
                   "Rows per pass; results do not depend on it [chosen]");
  add_compute_options(*verb, options->model);
  verb->remove_option(verb->get_option("--prefill-chunk"));  // --width says it
  verb->add_flag("--json", options->json, "Print logprob, top and perplexity as one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_score(*options); }; });
}

}  // namespace drafthouse::cli
