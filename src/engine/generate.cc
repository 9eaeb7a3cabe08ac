#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "text/detokenizer.h"

namespace drafthouse {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Turns the ids of one request into its result: text, end, limit. Holds the state between turns.
class Output {
 public:
  Output(const GenerateRequest& request, const Engine::Internals& parts, GenerateResult& result)
      : request_(request),
        result_(result),
        eos_ids_(parts.info.eos_ids),
        limit_(request.max_tokens == 0 ? ~std::size_t{0} : request.max_tokens),
        room_(parts.info.context - request.prompt_ids.size()),
        stops_(request.stop) {
    if (parts.tokenizer != nullptr) text_.emplace(parts.tokenizer, true);
  }

  bool finished() const { return !result_.finish_reason.empty(); }
  std::size_t left() const { return std::min(limit_, room_) - result_.ids.size(); }

  // Takes the ids of a turn in order, up to the one that ends the text.
  void take(std::span<const std::uint32_t> ids) {
    const std::size_t before = result_.ids.size();
    std::string piece;
    for (const std::uint32_t id : ids) {
      if (finished()) break;
      result_.ids.push_back(id);
      const bool ends = !request_.ignore_eos &&
                        std::binary_search(eos_ids_.begin(), eos_ids_.end(), id);
      if (ends) {
        result_.finish_reason = "stop";
      } else if (text_.has_value()) {
        piece += stops_.push(text_->push(id));
        if (stops_.stopped()) result_.finish_reason = "stop";
      }
      if (!finished() && result_.ids.size() >= std::min(limit_, room_)) {
        result_.finish_reason = "length";
      }
    }
    if (finished()) piece += rest();
    result_.text += piece;
    if (request_.on_tokens) {
      request_.on_tokens(piece, std::span<const std::uint32_t>(result_.ids).subspan(before));
    }
  }

  void cancel() {
    result_.finish_reason = "cancelled";
    const std::string piece = rest();
    result_.text += piece;
    if (request_.on_tokens && !piece.empty()) request_.on_tokens(piece, {});
  }

 private:
  std::string rest() {
    if (!text_.has_value() || stops_.stopped()) return {};
    std::string piece = stops_.push(text_->finish());
    piece += stops_.finish();
    return piece;
  }

  const GenerateRequest& request_;
  GenerateResult& result_;
  const std::vector<std::uint32_t>& eos_ids_;
  std::size_t limit_;
  std::size_t room_;
  std::optional<Detokenizer> text_;
  StopMatcher stops_;
};

// Seconds of a plain step beside this text: what its own plain turns took when there were a few, else
// the policy's estimate. No turn is faster than a plain step, so their mean is an upper bound.
double plain_step_seconds(std::vector<double>& plain_turns, double estimate,
                          const GenerateResult& result) {
  if (result.accepted_per_turn.empty()) return 0;
  if (plain_turns.size() >= 8) {
    const auto middle = plain_turns.begin() + static_cast<std::ptrdiff_t>(plain_turns.size() / 2);
    std::nth_element(plain_turns.begin(), middle, plain_turns.end());
    estimate = *middle;
  }
  return std::min(estimate, result.timings.decode_s /
                                static_cast<double>(result.accepted_per_turn.size()));
}

Status check_request(const GenerateRequest& request, const Engine::Internals& parts) {
  const EngineInfo& info = parts.info;
  if (request.prompt_ids.empty()) {
    return Status(Code::invalid_argument, "the prompt is empty; at least one id is needed");
  }
  for (std::size_t i = 0; i < request.prompt_ids.size(); ++i) {
    if (request.prompt_ids[i] >= info.vocab_size) {
      return Status(Code::invalid_argument,
                    fmt::format("prompt id {} (at {}) is outside the model's vocabulary of {}",
                                request.prompt_ids[i], i, info.vocab_size));
    }
  }
  if (request.prompt_ids.size() >= info.context) {
    return Status(Code::context_overflow,
                  fmt::format("the prompt has {} tokens, but a sequence has {} positions and needs "
                              "one for the answer; shorten the prompt",
                              request.prompt_ids.size(), info.context));
  }
  if (parts.draft != nullptr && request.width > info.block_size) {
    return Status(Code::invalid_argument,
                  fmt::format("width {} is more than the draft's block of {}", request.width,
                              info.block_size));
  }
  return {};
}

}  // namespace

Result<GenerateResult> Engine::generate(const GenerateRequest& request) {
  Internals& parts = *internals_;
  if (Status s = check_request(request, parts); !s.ok()) return s;
  TurnRunner& runner = *parts.runner;
  const bool drafts = parts.draft != nullptr && request.width != 1;

  GenerateResult result;
  result.mode = drafts ? "dflash" : "plain";
  if (!drafts) result.reason = parts.draft == nullptr ? "no draft" : "width";
  result.timings.load_s = parts.info.load_s;
  Output output(request, parts, result);

  Result<Sequence> started = runner.start(drafts);
  if (!started.ok()) return started.status();
  Sequence& sequence = started.value();
  auto start = std::chrono::steady_clock::now();
  const Status prefilled = runner.prefill(sequence, request.prompt_ids, request.cancel);
  result.timings.prefill_s = seconds_since(start);
  if (prefilled.code() == Code::cancelled) {
    output.cancel();
    return result;
  }
  if (!prefilled.ok()) return prefilled;
  output.take({&sequence.ids.back(), 1});

  std::vector<double> plain_turns;
  std::optional<WidthPolicy> policy;
  if (drafts) policy.emplace(*parts.costs, runner.block_size());
  start = std::chrono::steady_clock::now();
  while (!output.finished()) {
    std::uint32_t width = request.width;
    if (!drafts) {
      width = 1;
    } else if (width == 0) {
      width = policy->choose(static_cast<std::uint32_t>(output.left()));
    }
    const auto turn_start = std::chrono::steady_clock::now();
    Result<TurnOutcome> turn = runner.take_turn(sequence, width, request.cancel);
    if (!turn.ok()) {
      if (turn.status().code() != Code::cancelled) return turn.status();
      output.cancel();
      break;
    }
    const TurnOutcome& outcome = turn.value();
    if (policy.has_value()) {
      const double seconds = seconds_since(turn_start);
      policy->observe(outcome.width, outcome.gained, seconds);
      if (outcome.width == 1) plain_turns.push_back(seconds);
    }
    result.timings.draft_s += outcome.draft_s;
    result.timings.verify_s += outcome.verify_s;
    result.accepted_per_turn.push_back(outcome.gained);
    result.width_per_turn.push_back(outcome.width);
    output.take(std::span<const std::uint32_t>(sequence.ids).last(outcome.gained));
  }
  result.timings.decode_s = seconds_since(start);
  if (policy.has_value()) {
    result.plain_step_s = plain_step_seconds(plain_turns, policy->plain_step_s(), result);
    if (request.width == 0) result.policy = policy->explain();
  }
  return result;
}

}  // namespace drafthouse
