#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "formats/checkpoint.h"
#include "text/tokenizer.h"

namespace drafthouse::cli {
namespace {

struct TokenizeOptions {
  ModelOptions model;
  bool special = false;
  bool decode = false;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  echo -n "Hello world" | drafthouse tokenize --model ./Qwen3-4B
  drafthouse tokenize --model SmolLM2-135M-Instruct.Q4_1.gguf --json < text.txt
  echo '[9707, 1879]' | drafthouse tokenize --model ./Qwen3-4B --decode

Standard input is taken byte by byte, 16 MiB at most: a line end at its end is a token too. Special
tokens that stand in the text are read as special tokens. Without --json the answer is
a JSON list of ids, or with --decode the text itself. No weights are loaded.)";

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& model) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(model);
  if (!checkpoint.ok()) return checkpoint.status();
  const TokenizerSource& source = checkpoint.value().tokenizer();
  if (!source.has_tokenizer()) {
    return Status(Code::not_found, checkpoint.value().path() + " has no tokenizer");
  }
  return Tokenizer::create(source);
}

int print_ids(const Tokenizer& tokenizer, const std::string& text, const TokenizeOptions& options) {
  const Result<std::vector<TokenId>> ids = tokenizer.encode(text, options.special);
  if (!ids.ok()) return fail(ids.status(), options.json);
  if (options.json) return print_json(nlohmann::json{{"ids", ids.value()}}, kOk);
  return print_json(nlohmann::json(ids.value()), kOk);
}

int print_text(const Tokenizer& tokenizer, const std::string& text,
               const TokenizeOptions& options) {
  const Result<std::vector<TokenId>> ids = parse_ids(text, "standard input");
  if (!ids.ok()) return fail(ids.status(), options.json);
  for (std::size_t i = 0; i < ids.value().size(); ++i) {
    if (ids.value()[i] < tokenizer.size()) continue;
    return fail(
        Status(Code::invalid_argument, "standard input: element " + std::to_string(i) + " is " +
                                           std::to_string(ids.value()[i]) + "; the tokenizer has " +
                                           std::to_string(tokenizer.size()) + " ids, from 0 on"),
        options.json);
  }
  const Result<std::string> decoded = tokenizer.decode(ids.value(), false);
  if (!decoded.ok()) return fail(decoded.status(), options.json);
  if (options.json) return print_json(nlohmann::json{{"text", decoded.value()}}, kOk);
  return write_out(decoded.value());
}

int run_tokenize(const TokenizeOptions& options) {
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = open_tokenizer(options.model.target);
  if (!tokenizer.ok()) return fail(tokenizer.status(), options.json);
  const Result<std::string> text = read_input("-");
  if (!text.ok()) return fail(text.status(), options.json);
  return options.decode ? print_text(*tokenizer.value(), text.value(), options)
                        : print_ids(*tokenizer.value(), text.value(), options);
}

}  // namespace

void add_tokenize(CLI::App& app, RunFn& run) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* verb = app.add_subcommand("tokenize", "Text on standard input to token ids, or back");
  add_target_option(*verb, options->model);
  verb->add_flag("--special", options->special,
                 "Add what the tokenizer puts around a text, its BOS for example");
  verb->add_flag(
      "--decode", options->decode,
      "The other way: a JSON list of ids, or {\"ids\": …}, to text, special tokens included");
  verb->add_flag("--json", options->json, "Print one JSON object: {\"ids\": …} or {\"text\": …}");
  verb->footer(kExamples);
  verb->callback([&run, options] { run = [options] { return run_tokenize(*options); }; });
}

}  // namespace drafthouse::cli
