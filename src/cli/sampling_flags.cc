#include "cli/sampling_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>

#include "cli/model_options.h"
#include "cli/output.h"
#include "sampling/options_check.h"

namespace drafthouse::cli {
namespace {

void add_number(CLI::App& verb, const char* name, float& value, const char* text) {
  verb.add_option(name, value, text)->type_name("X");
}

void add_count(CLI::App& verb, const char* name, std::uint32_t& value, const char* text) {
  verb.add_option(name, value, text)
      ->type_name("N")
      ->check(number_check(0, std::numeric_limits<std::uint32_t>::max()));
}

// A decimal number of at most 64 bits, which CLI11 would also make of a negative one.
CLI::Validator seed_check() {
  return CLI::Validator(
      [](std::string& word) -> std::string {
        std::uint64_t seed = 0;
        const char* const end = word.data() + word.size();
        const auto read = std::from_chars(word.data(), end, seed);
        if (read.ec == std::errc() && read.ptr == end) return {};
        return fmt::format("{} is not a number from 0 to {}", word,
                           std::numeric_limits<std::uint64_t>::max());
      },
      "");
}

void add_ids(CLI::App& verb, const char* name, std::vector<std::uint32_t>& ids, const char* text) {
  verb.add_option(name, ids, text)
      ->type_name("IDS")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(number_check(0, std::numeric_limits<std::uint32_t>::max()));
}

// "ID=BIAS"; false: it is not.
bool read_bias(const std::string& text, LogitBias& bias) {
  const char* const end = text.data() + text.size();
  const auto id = std::from_chars(text.data(), end, bias.id);
  if (id.ec != std::errc() || id.ptr == end || *id.ptr != '=') return false;
  const auto value = std::from_chars(id.ptr + 1, end, bias.bias);
  return value.ec == std::errc() && value.ptr == end;
}

// "top_p is …" becomes "--top-p is …".
std::string as_flag(const std::string& message) {
  std::string flag = "--" + message;
  for (std::size_t i = 0; i < flag.size() && flag[i] != ' '; ++i) {
    if (flag[i] == '_') flag[i] = '-';
  }
  return flag;
}

}  // namespace

void add_basic_sampling(CLI::App& verb, SamplingFlags& flags) {
  SamplingOptions& options = flags.options;
  add_number(
      verb, "--temperature", options.temperature,
      "Draw instead of taking the most likely token; 1: as the model has it [0: do not draw]");
  add_count(verb, "--top-k", options.top_k, "Draw from the N most likely tokens only [0: all]");
  add_number(verb, "--top-p", options.top_p,
             "Draw from the most likely tokens that have this probability together [1]");
  add_number(verb, "--min-p", options.min_p,
             "Draw from tokens with this share of the most likely one's probability [0]");
  verb.add_option("--seed", flags.seed,
                  "One seed gives one text, with every draft, width and cache [random, and told]")
      ->type_name("N")
      ->check(seed_check());
}

void add_sampling(CLI::App& verb, SamplingFlags& flags) {
  add_basic_sampling(verb, flags);
  SamplingOptions& options = flags.options;
  add_number(verb, "--typical-p", options.typical_p,
             "Draw from the tokens nearest to the expected information, of this probability [1]");
  add_number(verb, "--xtc-probability", options.xtc_probability,
             "How often the top choices but the least of them are left out [0]");
  add_number(verb, "--xtc-threshold", options.xtc_threshold,
             "What probability makes a top choice [0.1]");
  add_number(verb, "--repetition-penalty", options.repetition_penalty,
             "Divides the logits of tokens that prompt or answer hold [1]");
  add_number(verb, "--presence-penalty", options.presence_penalty,
             "Taken from the logit of a token that the answer holds [0]");
  add_number(verb, "--frequency-penalty", options.frequency_penalty,
             "The same for every time that it holds it [0]");
  add_number(verb, "--dry-multiplier", options.dry_multiplier,
             "Against repeated sequences: the penalty of the shortest one [0: off]");
  add_number(verb, "--dry-base", options.dry_base, "It grows by this for every token more [1.75]");
  add_count(verb, "--dry-allowed-length", options.dry_allowed_length,
            "Tokens of the shortest sequence that counts [2]");
  add_count(verb, "--dry-range", options.dry_range, "Looks at the last N tokens only [0: all]");
  add_ids(verb, "--dry-breaker-ids", options.dry_breaker_ids,
          "Tokens that sequences do not go over");
  verb.add_option("--logit-bias", flags.logit_bias, "Adds BIAS to a token's logit; may be repeated")
      ->type_name("ID=BIAS")
      ->allow_extra_args(false);
  add_ids(verb, "--ban-ids", options.ban_ids, "Tokens that are never chosen");
  add_ids(verb, "--allow-ids", options.allow_ids, "The only tokens that are chosen [all]");
  add_count(verb, "--min-tokens", options.min_tokens,
            "No token that ends the text is chosen before it has N [0]");
}

namespace {

// The first flag that only means something where tokens are drawn; "" for none.
std::string_view drawing_flag(const SamplingOptions& options) {
  const SamplingOptions unset;
  if (options.top_k != unset.top_k) return "--top-k";
  if (options.top_p != unset.top_p) return "--top-p";
  if (options.min_p != unset.min_p) return "--min-p";
  if (options.typical_p != unset.typical_p) return "--typical-p";
  if (options.xtc_probability != unset.xtc_probability) return "--xtc-probability";
  return "";
}

// A flag that says how to do what another one asks for, which is not there; "" for none.
std::string without_its_flag(const SamplingOptions& options) {
  const SamplingOptions unset;
  std::string_view flag;
  if (options.dry_base != unset.dry_base) flag = "--dry-base";
  if (options.dry_allowed_length != unset.dry_allowed_length) flag = "--dry-allowed-length";
  if (options.dry_range != unset.dry_range) flag = "--dry-range";
  if (options.dry_breaker_ids != unset.dry_breaker_ids) flag = "--dry-breaker-ids";
  if (!flag.empty() && options.dry_multiplier == 0) {
    return fmt::format("{} needs --dry-multiplier, for example 0.8", flag);
  }
  if (options.xtc_threshold != unset.xtc_threshold && options.xtc_probability == 0) {
    return "--xtc-threshold needs --xtc-probability, for example 0.5";
  }
  return "";
}

}  // namespace

ReadSampling read_sampling(const SamplingFlags& flags) {
  ReadSampling read{.options = flags.options, .wrong = {}};
  read.options.seed = flags.seed;
  for (const std::string& text : flags.logit_bias) {
    LogitBias& bias = read.options.logit_bias.emplace_back();
    if (read_bias(text, bias)) continue;
    read.wrong =
        fmt::format("--logit-bias {}: expected a token id and a number, like 42=-1.5", text);
    return read;
  }
  if (const std::string_view flag = drawing_flag(read.options);
      !flag.empty() && read.options.temperature == 0) {
    read.wrong = fmt::format(
        "{} needs --temperature, for example 0.8: without it nothing is drawn, the "
        "most likely token is taken",
        flag);
    return read;
  }
  const Status status = check_sampling(read.options, std::numeric_limits<std::uint32_t>::max());
  read.wrong = status.ok() ? without_its_flag(read.options) : as_flag(status.message());
  return read;
}

void tell_idle(const SamplingFlags& flags) {
  if (!flags.seed.has_value() || flags.options.temperature != 0) return;
  say("--seed changes nothing without --temperature: the most likely token is taken, and every run "
      "gives the same text");
}

}  // namespace drafthouse::cli
