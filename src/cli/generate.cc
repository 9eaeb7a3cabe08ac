#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/answer_stream.h"
#include "cli/cache_options.h"
#include "cli/figures.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/logprobs_json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/reply_flags.h"
#include "cli/reply_json.h"
#include "cli/sampling_flags.h"
#include "cli/text_check.h"
#include "cli/verb.h"
#include "drafthouse/engine.h"
#include "engine/internals.h"

namespace drafthouse::cli {
namespace {

using json = nlohmann::ordered_json;

struct GenerateOptions {
  ModelOptions model;
  CacheOptions cache;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> ids_file;
  bool raw = false;
  std::uint32_t max_tokens = 256;
  std::string width = "auto";
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<std::uint32_t> stop_ids;
  SamplingFlags sampling;
  ReplyFlags reply;
  std::optional<std::string> json_schema;
  std::optional<std::string> regex;
  std::optional<std::string> grammar;
  std::optional<std::uint32_t> logprobs;
  bool prompt_logprobs = false;
  std::uint32_t n = 1;
  bool json = false;
};

constexpr double kFlushDeadline = 30;
constexpr double kFlushInterrupted = 0.2;

constexpr char kExamples[] = R"(Examples:
  drafthouse generate --model SmolLM2-135M-Instruct.Q4_1.gguf --draft smollm2-135m-dflash.gguf \
      --prompt "Write a Python function that adds two numbers."
  drafthouse generate --model ./Qwen3-4B --draft ./Qwen3-4B-DFlash --prompt-file question.txt
  drafthouse generate --model org/name --prompt "Once upon a time" --raw --max-tokens 64
  echo '[1, 2, 3]' | drafthouse generate --model ./Qwen3-4B --ids - --json
  drafthouse generate --model ./Qwen3-4B --prompt-file report.txt --cache-dir ~/.cache/drafthouse
  drafthouse generate --model ./Qwen3-4B --prompt "A poem." --temperature 0.8 --top-p 0.95 --seed 7
  drafthouse generate --model ./Qwen3-4B --prompt "17 * 23?" --thinking-budget 200 --json | jq .content
  drafthouse generate --model ./Qwen3-4B --prompt "Rain in Rome?" --tools tools.json \
      --template-options '{"enable_thinking": false}' --json | jq .tool_calls

With --cache-dir the state of prompt and answer is kept; a later prompt that begins alike continues from
it, after a restart too. Several models and processes may use one folder (see drafthouse cache).
The ids that come out do not depend on the draft, the width, the cache or the number of threads; with
--temperature they depend on --seed. What is done to a row of logits, in order: --logit-bias; --ban-ids,
--allow-ids, --min-tokens, a grammar; --repetition-penalty; --presence-penalty, --frequency-penalty; --dry-…;
--temperature; --top-k; --top-p; --min-p; --typical-p; --xtc-…. Nothing is taken from a model's
generation_config.json.
A reply is read by the notation of the model's family (--reply-format): on a terminal its thoughts are
dimmed and calls of tools stand on lines of their own. Into a pipe or a file goes the answer alone, and
thoughts to standard error where that is a terminal; with --raw or --reply-format plain all of the text,
as it was written. With --json "text" is all of it, "content", "reasoning" and "tool_calls" are its
parts. A grammar begins behind the thoughts.
Special tokens that stand in a prompt (<|im_end|>, for example) are read as special tokens, with a
chat template too: take them out of text that you do not trust.
Exit codes: 0 done, 1 failed (also by what a file holds or this model cannot do), 2 wrong usage, told
before any weights are read, 130 interrupted (what was generated stands), 141 nobody reads the output
any more.)";

// What is wrong with the combination of options, or "".
std::string refusal(const GenerateOptions& options) {
  const int sources = static_cast<int>(options.prompt.has_value()) +
                      static_cast<int>(options.prompt_file.has_value()) +
                      static_cast<int>(options.ids_file.has_value());
  if (sources == 0) return "generate needs --prompt TEXT, --prompt-file FILE or --ids FILE";
  if (sources > 1) return "--prompt, --prompt-file and --ids exclude each other";
  for (const std::string& stop : options.stop) {
    if (stop.empty()) return "--stop needs a text of at least one character";
  }
  const int grammars = static_cast<int>(options.json_schema.has_value()) +
                       static_cast<int>(options.regex.has_value()) +
                       static_cast<int>(options.grammar.has_value());
  if (grammars > 1) return "--json-schema, --regex and --grammar exclude each other";
  if (grammars == 1 && options.ignore_eos) {
    return "--ignore-eos and a grammar exclude each other: only an end can follow the grammar's "
           "text";
  }
  if (options.logprobs.has_value() && !options.json) return "--logprobs needs --json";
  if (options.prompt_logprobs && !options.json) return "--prompt-logprobs needs --json";
  if (options.n > 1 && options.sampling.options.temperature == 0) {
    return "--n gives the same answer so many times without --temperature";
  }
  if (const std::string wrong = read_sampling(options.sampling).wrong; !wrong.empty()) return wrong;
  if (const std::uint32_t least = options.sampling.options.min_tokens;
      options.max_tokens > 0 && least > options.max_tokens) {
    return fmt::format("--min-tokens {} is more than --max-tokens {}", least, options.max_tokens);
  }
  if (options.raw || options.ids_file.has_value()) {
    const bool given = !options.reply.variables.empty() || options.reply.documents_file.has_value();
    if (given) {
      return "--template-options and --documents go into the chat template, which --raw and --ids "
             "leave out";
    }
  }
  if (const std::string wrong = reply_refusal(options.reply); !wrong.empty()) return wrong;
  if (const std::string wrong = cache_refusal(options.cache); !wrong.empty()) return wrong;
  return pair_refusal(options.model, options.width);
}

Result<std::vector<std::uint32_t>> encode_prompt(const Engine& engine, const std::string& text,
                                                 bool raw, const ChatOptions& chat) {
  const EngineInfo& info = engine.info();
  if (!info.has_tokenizer) {
    return Status(Code::not_found,
                  fmt::format("{} has no tokenizer: give token ids with --ids FILE", info.target));
  }
  if (!raw && !info.has_chat_template) {
    return Status(Code::not_found,
                  fmt::format("{} has no chat template: add --raw to continue the text as it is",
                              info.target));
  }
  if (raw) return engine.encode(text, true);
  const ChatTurn message{"user", text};
  return engine.encode_chat(std::span(&message, 1), chat);
}

// Read before the model loads, so that a wrong file is told at once, and while a signal still ends
// the process, so that it cannot be missed by a read that waits.
struct Prompt {
  std::string text;
  std::vector<std::uint32_t> ids;
};

Result<Prompt> read_prompt(const GenerateOptions& options) {
  Prompt prompt;
  if (options.ids_file.has_value()) {
    Result<std::vector<std::uint32_t>> ids = read_ids(*options.ids_file);
    if (!ids.ok()) return ids.status();
    prompt.ids = std::move(ids).value();
    if (prompt.ids.empty()) {
      return Status(
          Code::invalid_argument,
          input_name(*options.ids_file) + ": the list is empty; a prompt has at least one id");
    }
    return prompt;
  }
  if (options.prompt.has_value()) {
    prompt.text = *options.prompt;
    return prompt;
  }
  Result<std::string> text = read_input(*options.prompt_file);
  if (!text.ok()) return text.status();
  prompt.text = std::move(text).value();
  return prompt;
}

Result<GrammarSpec> read_grammar(const GenerateOptions& options) {
  GrammarSpec spec;
  if (options.regex.has_value()) return GrammarSpec{GrammarForm::regex, *options.regex};
  if (!options.json_schema.has_value() && !options.grammar.has_value()) return spec;
  const bool schema = options.json_schema.has_value();
  Result<std::string> text = read_input(schema ? *options.json_schema : *options.grammar);
  if (!text.ok()) return text.status();
  spec.form = schema ? GrammarForm::json_schema : GrammarForm::lark;
  spec.text = std::move(text).value();
  return spec;
}

double per_second(std::size_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

void print_summary(const GenerateResult& result, std::size_t prompt_tokens, std::uint32_t width) {
  const Timings& timings = result.timings;
  if (result.ids.empty() && result.finish_reason == "cancelled") {
    return say("interrupted while the model was reading the prompt");
  }
  // The speed of what was computed; of a few tokens it would say nothing.
  constexpr std::size_t kRateTokensMin = 16;
  const std::size_t computed = prompt_tokens - result.cache.matched_tokens;
  std::string line = fmt::format("{} prompt tokens", prompt_tokens);
  if (result.cache.matched_tokens > 0) line += fmt::format(" ({} new)", computed);
  if (computed >= kRateTokensMin) {
    line += fmt::format(" at {:.0f} tok/s", per_second(computed, timings.prefill_s));
  }
  line += fmt::format(", {} token{}", result.ids.size(), result.ids.size() == 1 ? "" : "s");
  // The first id comes from prefill.
  const std::size_t decoded = result.ids.empty() ? 0 : result.ids.size() - 1;
  if (decoded > 0) line += fmt::format(" at {:.1f} tok/s", tokens_per_second(result));
  if (result.mode == "dflash" && !result.accepted_per_turn.empty()) {
    // Of the tokens that were kept: the last turn may have gained some past the end.
    line += fmt::format(
        ", {:.2f} tokens per turn",
        static_cast<double>(decoded) / static_cast<double>(result.accepted_per_turn.size()));
    const auto& widths = result.width_per_turn;
    const bool speculated =
        std::any_of(widths.begin(), widths.end(), [](std::uint32_t rows) { return rows > 1; });
    if (speculated && result.plain_step_s > 0 && decoded > 0) {
      line += fmt::format(", {:.2f}x plain speed", tokens_per_second(result) * result.plain_step_s);
    }
  }
  if (result.finish_reason != "stop") line += fmt::format(" ({})", result.finish_reason);
  say(line);
  std::string how = result.mode;
  if (!result.reason.empty()) {
    how += fmt::format(" ({})", result.reason == "width" ? "width 1" : result.reason);
  }
  if (result.reason == "no draft" && width > 1) {
    how += fmt::format("; --width {} needs --draft", width);
  }
  if (!result.policy.empty()) how += ": " + result.policy;
  say(how);
  if (result.seed.has_value()) say(fmt::format("drawn with --seed {}", *result.seed));
  if (result.cache.reason == "disabled") return;
  say(fmt::format("cache: {} of {} prompt tokens{}{}; {} pages of 64 tokens stored",
                  result.cache.matched_tokens, prompt_tokens,
                  result.cache.matched_tokens > 0 ? " from " + result.cache.tier : "",
                  result.cache.reason.empty() ? "" : " (" + result.cache.reason + ")",
                  result.cache.stored_pages));
}

void add_logprobs(json& object, const char* name, const Tokenizer* tokenizer,
                  const std::vector<TokenLogprob>& tokens) {
  for (const TokenLogprob& token : tokens) {
    object[name].push_back(describe_logprob<json>(tokenizer, token));
  }
}

json describe(Engine& engine, const GenerateResult& result,
              const std::vector<std::uint32_t>& prompt_ids) {
  const EngineInfo& info = engine.info();
  const Timings& timings = result.timings;
  json object = {
      {"prompt_ids", prompt_ids},
      {"ids", result.ids},
      {"text", result.text},
      {"finish_reason", result.finish_reason},
      {"accepted_per_turn", result.accepted_per_turn},
      {"width_per_turn", result.width_per_turn},
      {"acceptance", acceptance(result)},
      {"tok_s", tokens_per_second(result)},
      {"mode", result.mode},
      {"timings",
       {{"load_s", info.load_s},
        {"restore_s", timings.restore_s},
        {"prefill_s", timings.prefill_s},
        {"decode_s", timings.decode_s},
        {"draft_s", timings.draft_s},
        {"verify_s", timings.verify_s}}},
      {"plain_step_s", result.plain_step_s},
      {"cache",
       {{"matched_tokens", result.cache.matched_tokens},
        {"tier", result.cache.tier},
        {"reason", result.cache.reason},
        {"stored_pages", result.cache.stored_pages}}},
      {"model",
       {{"target", info.target},
        {"draft", info.draft.empty() ? json(nullptr) : json(info.draft)},
        {"family", info.family},
        {"weights", info.weights},
        {"isa", info.isa},
        {"threads", info.threads},
        {"context", info.context},
        {"reply_format", drafthouse::name_of(info.reply_format)},
        {"block_size", info.block_size}}},
      {"hooks", describe_hooks<json>(info.hooks)},
  };
  if (result.mode == "plain") object["reason"] = result.reason;
  if (!result.policy.empty()) object["policy"] = result.policy;
  if (result.seed.has_value()) object["seed"] = *result.seed;
  add_reply(object, result);
  const Tokenizer* tokenizer = engine.internals().tokenizer.get();
  add_logprobs(object, "logprobs", tokenizer, result.logprobs);
  add_logprobs(object, "prompt_logprobs", tokenizer, result.prompt_logprobs);
  for (const GenerateResult& other : result.more) {
    json answer = {{"ids", other.ids},
                   {"text", other.text},
                   {"finish_reason", other.finish_reason},
                   {"accepted_per_turn", other.accepted_per_turn}};
    add_reply(answer, other);
    add_logprobs(answer, "logprobs", tokenizer, other.logprobs);
    object["more"].push_back(std::move(answer));
  }
  json& memory = object["memory"] = json::object();
  for (const auto& [tag, bytes] : engine.memory()) memory[tag] = bytes;
  return object;
}

// Brings what the request has published to disk; `cache` then says what is there.
void store(Engine& engine, const CacheOptions& options, CacheReport& cache) {
  if (options.directory.empty()) return;
  // After a signal the process has little time left.
  const double deadline_s = interrupted() ? kFlushInterrupted : kFlushDeadline;
  const Result<Engine::Stored> stored = engine.flush_cache(deadline_s);
  if (!stored.ok()) return say(stored.status().message());
  const std::uint32_t published = cache.stored_pages;
  cache.stored_pages = stored.value().pages;
  if (cache.stored_pages == published) return;
  say(fmt::format("{} of {} pages were stored in {}: {}", cache.stored_pages, published,
                  options.directory, stored.value().why_not_more));
}

int run_generate(const GenerateOptions& options) {
  tell_idle(options.sampling);
  tell_idle(options.model);
  if (const std::string wrong = refusal(options); !wrong.empty()) {
    return usage_error("generate", wrong);
  }
  Result<Prompt> prompt = read_prompt(options);
  if (!prompt.ok()) return fail(prompt.status(), options.json);
  Result<GrammarSpec> grammar = read_grammar(options);
  if (!grammar.ok()) return fail(grammar.status(), options.json);
  Result<ReadReply> reply = read_reply(options.reply);
  if (!reply.ok()) return fail(reply.status(), options.json);
  const bool templated = !options.raw && !options.ids_file.has_value();
  Result<OpenedTarget> target = open_target(options.model.target);
  if (!target.ok()) return fail(target.status(), options.json);
  if (const Status s = check_reply(target.value(), reply.value(), templated); !s.ok()) {
    return fail(s, options.json);
  }
  if (const Status s = check_grammar(target.value(), grammar.value()); !s.ok()) {
    if (options.regex.has_value()) return usage_error("generate", s.message());
    const std::string& file = options.grammar.has_value() ? *options.grammar : *options.json_schema;
    return fail(Status(s.code(), input_name(file) + ": " + s.message()), options.json);
  }
  std::optional<CacheConfig> cache;
  if (!options.cache.directory.empty()) cache = cache_config(options.cache);
  Result<std::unique_ptr<Engine>> loaded =
      load_engine(std::move(target).value(), options.model, cache);
  if (!loaded.ok()) return fail(loaded.status(), options.json);
  Engine& engine = *loaded.value();

  GenerateRequest request;
  request.prompt_ids = std::move(prompt.value().ids);
  if (!options.ids_file.has_value()) {
    Result<std::vector<std::uint32_t>> ids =
        encode_prompt(engine, prompt.value().text, options.raw, reply.value().chat);
    if (!ids.ok()) return fail(ids.status(), options.json);
    request.prompt_ids = std::move(ids).value();
    if (request.prompt_ids.empty()) {
      return fail(Status(Code::invalid_argument, "the prompt has no tokens"), options.json);
    }
  }
  request.max_tokens = options.max_tokens;
  request.width = width_of(options.width);
  request.ignore_eos = options.ignore_eos;
  request.stop = options.stop;
  request.stop_ids = options.stop_ids;
  request.sampling = read_sampling(options.sampling).options;
  request.grammar = std::move(grammar).value();
  request.logprobs = options.logprobs.has_value();
  request.top_logprobs = options.logprobs.value_or(0);
  request.prompt_logprobs = options.prompt_logprobs;
  request.n = options.n;
  request.reply = reply.value().reply;
  request.cancel = &interrupt_flag();
  AnswerStream stream({.has_text = engine.info().has_tokenizer,
                       .continues_text = options.raw,
                       .constrained = request.grammar.form != GrammarForm::none,
                       .format = request.reply.format.value_or(engine.info().reply_format)});
  if (!options.json) {
    request.on_tokens = [&stream](std::string_view text, std::span<const std::uint32_t> ids) {
      stream.push(text, ids);
    };
    request.on_reply = [&stream](const ReplyPart& part) { stream.push(part); };
  }

  Result<GenerateResult> generated = engine.generate(request);
  if (!options.json) {
    stream.end_line();
    if (generated.ok()) stream.push_more(generated.value());
  }
  if (stream.state() != kOk) return stream.state();
  if (!generated.ok()) return fail(generated.status(), options.json);
  GenerateResult& result = generated.value();
  store(engine, options.cache, result.cache);
  const int exit_code = result.finish_reason == "cancelled" ? kInterrupted : kOk;
  if (options.json) {
    return print_json(describe(engine, result, request.prompt_ids), exit_code);
  }
  print_summary(result, request.prompt_ids.size(), request.width);
  return exit_code;
}

}  // namespace

void add_generate(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* verb =
      app.add_subcommand("generate", "Answer a prompt, with a DFlash draft or without");
  add_target_option(*verb, options->model);
  add_draft_options(*verb, options->model);
  verb->add_option("--prompt", options->prompt, "What the user says")->type_name("TEXT");
  verb->add_option("--prompt-file", options->prompt_file,
                   "The same from a file, as it is, 16 MiB at most; - is standard input")
      ->type_name("FILE");
  verb->add_option("--ids", options->ids_file,
                   "A JSON list of token ids, used as they are; - is standard input")
      ->type_name("FILE");
  verb->add_flag("--raw", options->raw, "Continue the text: no chat template");
  verb->add_option("--max-tokens", options->max_tokens,
                   "Tokens to generate at most; 0: until the context is full [256]")
      ->type_name("N")
      ->check(number_check(0, kPositionsMax));
  add_width_option(*verb, options->width, WidthKind::number_or_auto,
                   "Tokens per verify pass, 1 to the draft's block size [auto: what pays]");
  verb->add_flag("--ignore-eos", options->ignore_eos, "Go on after the model has ended its text");
  verb->add_option("--stop", options->stop, "End the text before this one; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  verb->add_option("--stop-id", options->stop_ids, "End the text with this token; may be repeated")
      ->type_name("ID")
      ->allow_extra_args(false)
      ->check(number_check(0, std::numeric_limits<std::uint32_t>::max()));
  add_sampling(*verb, options->sampling);
  add_reply_flags(*verb, options->reply);
  verb->add_option("--json-schema", options->json_schema, "The answer is JSON of this schema")
      ->type_name("FILE");
  verb->add_option("--regex", options->regex,
                   "The answer matches this regular expression as a whole")
      ->type_name("REGEX");
  verb->add_option("--grammar", options->grammar, "The answer is of this Lark grammar")
      ->type_name("FILE");
  verb->add_option("--logprobs", options->logprobs,
                   "With --json: log-probabilities of the tokens, and of the N most likely ones")
      ->type_name("N")
      ->check(number_check(0, 100));
  verb->add_flag("--prompt-logprobs", options->prompt_logprobs,
                 "With --json: the same of the prompt's tokens, from the second on");
  verb->add_option("--n", options->n, "Answers to draw; they share the reading of the prompt [1]")
      ->type_name("N")
      ->check(number_check(1, 16));
  add_compute_options(*verb, options->model);
  add_cache_options(*verb, options->cache);
  verb->add_flag("--json", options->json, "Print one JSON object instead of text");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_generate(*options); }; });
}

}  // namespace drafthouse::cli
