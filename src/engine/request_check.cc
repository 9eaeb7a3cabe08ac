#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "sampling/options_check.h"
#include "text/chat_options.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kTopLogprobsMax = 100;
constexpr std::uint32_t kAnswersMax = 16;
// Of a prompt, that say whether it ends in a thought.
constexpr std::size_t kTailIds = 32;

// They need no secrecy, only to differ, and must come out of a JSON reader whose numbers are
// doubles as they went in.
std::uint64_t random_seed() {
  constexpr int kBits = 53;
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) >> (64 - kBits);
}

Status invalid(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

// The end of the prompt, special tokens included.
std::string tail_of(const GenerateRequest& request, const Tokenizer& tokenizer) {
  std::string tail;
  const std::size_t count = request.prompt_ids.size();
  for (std::size_t i = count - std::min(count, kTailIds); i < count; ++i) {
    tail += tokenizer.bytes_of(request.prompt_ids[i]);
  }
  return tail;
}

}  // namespace

Status check_request(const GenerateRequest& request, const RequestLimits& limits) {
  if (request.prompt_ids.empty()) {
    return invalid("the prompt is empty; at least one id is needed");
  }
  for (std::size_t i = 0; i < request.prompt_ids.size(); ++i) {
    if (request.prompt_ids[i] < limits.vocab_size) continue;
    return invalid(fmt::format("prompt id {} (at {}) is outside the model's vocabulary of {}",
                               request.prompt_ids[i], i, limits.vocab_size));
  }
  if (request.prompt_ids.size() >= limits.context) {
    return Status(Code::context_overflow,
                  fmt::format("the prompt has {} tokens, but a sequence has {} positions and needs "
                              "one for the answer; shorten the prompt",
                              request.prompt_ids.size(), limits.context));
  }
  if (limits.block_size > 0 && request.width > limits.block_size) {
    return invalid(fmt::format("width {} is more than the draft's block of {}", request.width,
                               limits.block_size));
  }
  if (request.top_logprobs > kTopLogprobsMax) {
    return invalid(fmt::format("top_logprobs is {}; it may be at most {}", request.top_logprobs,
                               kTopLogprobsMax));
  }
  if (request.n == 0 || request.n > kAnswersMax) {
    return invalid(fmt::format("n is {}; it must be 1 to {}", request.n, kAnswersMax));
  }
  for (const std::uint32_t id : request.stop_ids) {
    if (id < limits.vocab_size) continue;
    return invalid(fmt::format("stop_ids holds id {}, which is outside the vocabulary of {} ids",
                               id, limits.vocab_size));
  }
  if (request.ignore_eos && request.grammar.form != GrammarForm::none) {
    return invalid(
        "ignore_eos and a grammar exclude each other: nothing but the end can follow a text that "
        "the grammar has ended; leave one of them out");
  }
  if (!request.reply.tools.empty()) {
    if (Status s = check_tools(request.reply.tools); !s.ok()) return s;
  }
  return check_sampling(request.sampling, limits.vocab_size);
}

Status check_budget(ReplyFormat format) {
  if (thought_marks(format).has_value()) return {};
  return invalid(fmt::format(
      "thinking_budget: replies in the format \"{}\" hold no thoughts; leave it out, or "
      "name the format",
      name_of(format)));
}

std::vector<std::uint32_t> end_ids(const GenerateRequest& request,
                                   std::span<const std::uint32_t> eos_ids) {
  std::vector<std::uint32_t> ids = request.stop_ids;
  if (!request.ignore_eos) ids.insert(ids.end(), eos_ids.begin(), eos_ids.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

ReplyParser::Options reply_start(const GenerateRequest& request, ReplyFormat own,
                                 const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return {};
  ReplyParser::Options options{.format = request.reply.format.value_or(own),
                               .tools_json = request.reply.tools};
  options.in_reasoning = ends_in_reasoning(options.format, tail_of(request, *tokenizer));
  return options;
}

Result<std::optional<ReplyRule>> reply_rule(const GenerateRequest& request,
                                            const RequestLimits& limits, ReplyFormat own,
                                            const Tokenizer* tokenizer) {
  const std::optional<std::uint32_t>& budget = request.reply.thinking_budget;
  const ReplyFormat format = request.reply.format.value_or(own);
  const bool thinks = tokenizer != nullptr && thought_marks(format).has_value();
  if (!thinks && budget.has_value()) {
    return check_budget(tokenizer == nullptr ? ReplyFormat::plain : format);
  }
  const bool constrained = budget.has_value() || request.grammar.form != GrammarForm::none;
  if (!thinks || !constrained) return std::optional<ReplyRule>();
  const std::string tail = tail_of(request, *tokenizer);
  return std::optional<ReplyRule>(ReplyRule{.format = format,
                                            .in_reasoning = ends_in_reasoning(format, tail),
                                            .opens = opens_reply(format, tail),
                                            .budget = budget,
                                            .end_ids = end_ids(request, limits.eos_ids)});
}

std::optional<SamplerJob> sampler_job(const GenerateRequest& request, const RequestLimits& limits) {
  const bool scored = request.logprobs || request.prompt_logprobs;
  const bool free =
      request.grammar.form == GrammarForm::none && !request.reply.thinking_budget.has_value();
  if (Sampler::plain(request.sampling) && free && !scored) return {};
  SamplerJob job;
  job.options = request.sampling;
  job.seed = request.sampling.seed.has_value() ? *request.sampling.seed : random_seed();
  job.vocabulary = limits.vocab_size;
  job.choices = limits.choices;
  job.prompt_length = static_cast<std::uint32_t>(request.prompt_ids.size());
  job.length_max = limits.context + 1;
  job.logprobs = request.logprobs;
  job.top_logprobs = request.top_logprobs;
  job.prompt_logprobs = request.prompt_logprobs;
  job.end_ids = end_ids(request, limits.eos_ids);
  return job;
}

}  // namespace drafthouse
