#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/cache_options.h"
#include "cli/demo_talks.h"
#include "cli/host_log.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/repository.h"
#include "cli/verb.h"
#include "drafthouse/host.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct DemoOptions {
  std::string models;
  CacheOptions cache;
  std::uint32_t rounds = 3;
  std::uint32_t talks = 2;
  std::uint32_t max_tokens = 48;
  std::uint32_t threads = 0;
  bool json = false;
};

constexpr char kName[] = "host-demo";
constexpr double kFlushDeadline = 30;

constexpr char kExamples[] = R"(Examples:
  drafthouse host-demo
  drafthouse host-demo --rounds 6 --talks 4 --json
  drafthouse host-demo --cache-dir ~/.cache/drafthouse     the second time, prompts come from disk

Loads every pair that the repository has into one host and talks with all of them at once: in each
round every conversation sends its next message before the first answer is waited for. Before that,
each pair answers the same messages alone and without a cache. The ids must be the same.
Exit codes: 0 all ids are the same, 1 they are not, or something failed, 2 wrong usage, 130 interrupted.)";

// What came of the demonstration.
struct Demo {
  std::vector<KnownPair> pairs;
  std::vector<KnownPair> skipped;
  HostStats stats;
  std::vector<std::uint32_t>
      differing;  // answers whose ids are not those of the pair alone, per pair
  double alone_s = 0;
  double together_s = 0;

  bool same() const {
    for (const std::uint32_t count : differing) {
      if (count != 0) return false;
    }
    return true;
  }
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<std::unique_ptr<Host>> make_host(const DemoOptions& options, HostLog& log) {
  HostOptions host;
  host.threads = options.threads;
  host.log = log.callback();
  return Host::create(host);
}

Status load(Host& host, const KnownPair& pair, const CacheOptions& cache) {
  ModelOptions model;
  model.target = pair.target;
  model.draft = pair.draft;
  return host.load(model_spec(pair.name, model, cache));
}

// The conversations with one pair, one message at a time and without a cache.
Status run_alone(const DemoOptions& options, const KnownPair& pair, std::vector<DemoTalk>& talks,
                 double& seconds) {
  HostLog log;
  Result<std::unique_ptr<Host>> host = make_host(options, log);
  if (!host.ok()) return host.status();
  if (Status s = load(*host.value(), pair, {}); !s.ok()) return s;
  log.open();
  const Clock::time_point start = Clock::now();
  for (DemoTalk& talk : talks) {
    std::vector<DemoTalk> one = {std::move(talk)};
    for (std::uint32_t round = 0; round < options.rounds; ++round) {
      const Status s = run_round(*host.value(), one, one, round, {options.max_tokens, false});
      if (!s.ok()) return s;
    }
    talk = std::move(one.front());
  }
  seconds += seconds_since(start);
  return {};
}

// All conversations of all pairs at once, with one host.
Status run_together(const DemoOptions& options, const std::vector<DemoTalk>& alone, Demo& demo,
                    StageLine& stage) {
  HostLog log;
  Result<std::unique_ptr<Host>> made = make_host(options, log);
  if (!made.ok()) return made.status();
  Host& host = *made.value();
  for (const KnownPair& pair : demo.pairs) {
    stage.show(fmt::format("all together: loading {}", pair.name));
    if (Status s = load(host, pair, options.cache); !s.ok()) return s;
  }
  log.open();
  std::vector<DemoTalk> talks = alone;
  for (DemoTalk& talk : talks) talk.replies.clear();
  const Clock::time_point start = Clock::now();
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    stage.show(fmt::format("all together: round {} of {}", round + 1, options.rounds));
    const Status s = run_round(host, talks, alone, round, {options.max_tokens, true});
    if (!s.ok()) return s;
  }
  demo.together_s = seconds_since(start);
  demo.stats = host.stats();
  for (const KnownPair& pair : demo.pairs) {
    std::uint32_t differing = 0;
    for (std::size_t i = 0; i < talks.size(); ++i) {
      if (talks[i].model != pair.name) continue;
      for (std::uint32_t r = 0; r < options.rounds; ++r) {
        differing += talks[i].replies[r].result.ids != alone[i].replies[r].result.ids ? 1 : 0;
      }
    }
    demo.differing.push_back(differing);
  }
  flush_cache(host, options.cache, kFlushDeadline);
  return {};
}

Status run_demo(const DemoOptions& options, Demo& demo) {
  StageLine stage;
  std::vector<std::vector<DemoTalk>> alone;
  for (const KnownPair& pair : demo.pairs) {
    stage.show(fmt::format("alone: {}", pair.name));
    alone.push_back(make_talks(pair.name, options.talks, options.rounds));
    if (Status s = run_alone(options, pair, alone.back(), demo.alone_s); !s.ok()) return s;
  }
  // Neighbours in a round are of different pairs.
  std::vector<DemoTalk> interleaved;
  for (std::uint32_t i = 0; i < options.talks; ++i) {
    for (std::vector<DemoTalk>& talks : alone) interleaved.push_back(std::move(talks[i]));
  }
  return run_together(options, interleaved, demo, stage);
}

const ModelStats* stats_of(const Demo& demo, const std::string& name) {
  for (const ModelStats& model : demo.stats.models) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

double acceptance(const ModelStats& model) {
  return model.turns == 0
             ? 0
             : static_cast<double>(model.turn_tokens) / static_cast<double>(model.turns);
}

json describe(const Demo& demo, const DemoOptions& options) {
  json models = json::array();
  for (std::size_t i = 0; i < demo.pairs.size(); ++i) {
    const KnownPair& pair = demo.pairs[i];
    const ModelStats* model = stats_of(demo, pair.name);
    if (model == nullptr) continue;
    models.push_back(
        {{"name", pair.name},
         {"target", model->info.target},
         {"draft", model->info.draft},
         {"requests", model->requests},
         {"finished", model->finished},
         {"prompt_tokens", model->prompt_tokens},
         {"tokens", model->generated_tokens},
         {"hit_tokens", {{"ram", model->ram_hit_tokens}, {"disk", model->disk_hit_tokens}}},
         {"acceptance", acceptance(*model)},
         {"memory", model->memory_bytes},
         {"shared_weights", model->shared_weight_bytes},
         {"cache_pages", model->cache_pages},
         {"manager_rebuilds", model->manager_rebuilds},
         {"differing_answers", demo.differing[i]}});
  }
  json skipped = json::array();
  for (const KnownPair& pair : demo.skipped) {
    skipped.push_back({{"name", pair.name}, {"missing", pair.missing}});
  }
  return {{"models", models},
          {"skipped", skipped},
          {"rounds", options.rounds},
          {"talks", options.talks},
          {"same_ids", demo.same()},
          {"alone_s", demo.alone_s},
          {"together_s", demo.together_s},
          {"memory",
           {{"limit", demo.stats.memory_limit},
            {"used", demo.stats.memory_used},
            {"peak", demo.stats.memory_peak}}}};
}

std::string table(const Demo& demo, const DemoOptions& options) {
  std::string text = fmt::format("{:<17}{:>9}{:>8}{:>9}{:>10}{:>10}{:>12}{:>12}{:>10}  {}\n",
                                 "model", "requests", "prompt", "tokens", "from RAM", "from disk",
                                 "tokens/turn", "memory", "rebuilds", "ids");
  for (std::size_t i = 0; i < demo.pairs.size(); ++i) {
    const ModelStats* model = stats_of(demo, demo.pairs[i].name);
    if (model == nullptr) continue;
    text += fmt::format(
        "{:<17}{:>9}{:>8}{:>9}{:>10}{:>10}{:>12.2f}{:>12}{:>10}  {}\n", model->name,
        model->requests, model->prompt_tokens, model->generated_tokens, model->ram_hit_tokens,
        model->disk_hit_tokens, acceptance(*model), human_bytes(model->memory_bytes),
        model->manager_rebuilds,
        demo.differing[i] == 0 ? "as alone" : fmt::format("{} answers differ", demo.differing[i]));
  }
  text += fmt::format(
      "\n{}, {} each of {}: {:.1f} s all together, {:.1f} s one by one "
      "without a cache\nmemory: {} of {}, {} at most\n",
      counted(demo.pairs.size(), "pair"), counted(options.talks, "conversation"),
      counted(options.rounds, "message"), demo.together_s, demo.alone_s,
      human_bytes(demo.stats.memory_used), human_bytes(demo.stats.memory_limit),
      human_bytes(demo.stats.memory_peak));
  text += demo.same() ? "all ids are those of each pair alone\n"
                      : "ids differ from those of a pair alone: please report this\n";
  return text;
}

int run_verb(const DemoOptions& options) {
  if (const std::string wrong = cache_refusal(options.cache); !wrong.empty()) {
    return usage_error(kName, wrong);
  }
  Demo demo;
  for (KnownPair& pair : known_pairs(options.models)) {
    (pair.missing.empty() ? demo.pairs : demo.skipped).push_back(std::move(pair));
  }
  for (const KnownPair& pair : demo.skipped) {
    say(fmt::format("{} is skipped: {} is not there{}{}", pair.name, pair.missing,
                    pair.remedy.empty() ? "" : "; ", pair.remedy));
  }
  if (demo.pairs.empty()) {
    return fail(
        Status(Code::not_found, "no pair was found; --models names the folder that has some"),
        options.json);
  }
  if (const Status s = run_demo(options, demo); !s.ok()) return fail(s, options.json);
  const int exit_code = demo.same() ? kOk : kFailed;
  if (options.json) return print_json(describe(demo, options), exit_code);
  const ExitCode written = write_out(table(demo, options));
  return written == kOk ? exit_code : written;
}

}  // namespace

void add_host_demo(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* verb =
      app.add_subcommand(kName, "Several pairs in one process: conversations with all at once");
  verb->add_option("--models", options->models,
                   "Folder with the pairs [the repository of this binary]")
      ->type_name("FOLDER");
  verb->add_option("--rounds", options->rounds, "Messages of a conversation [3]")
      ->type_name("N")
      ->check(number_check(1, 64));
  verb->add_option("--talks", options->talks, "Conversations with each pair [2]")
      ->type_name("N")
      ->check(number_check(1, 16));
  verb->add_option("--max-tokens", options->max_tokens, "Tokens of an answer at most [48]")
      ->type_name("N")
      ->check(number_check(1, 4096));
  verb->add_option("--threads", options->threads, "Compute threads of the host [one per core]")
      ->type_name("N")
      ->check(number_check(1, 1024));
  add_cache_options(*verb, options->cache);
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_verb(*options); }; });
}

}  // namespace drafthouse::cli
