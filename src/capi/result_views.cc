#include "capi/result_views.h"

#include "capi/structs.h"

namespace drafthouse::capi {

std::vector<dh_tool_call> views(const std::vector<ToolCall>& from) {
  std::vector<dh_tool_call> made;
  for (const ToolCall& call : from) {
    made.push_back({.size = sizeof(dh_tool_call),
                    .name = as_string(call.name),
                    .arguments = as_string(call.arguments),
                    .id = as_string(call.id)});
  }
  return made;
}

std::vector<dh_token_logprob> ResultViews::views(const std::vector<TokenLogprob>& from) {
  std::vector<dh_token_logprob> made;
  for (const TokenLogprob& token : from) {
    std::vector<dh_id_logprob>& top = tops_.emplace_back();
    for (const IdLogprob& one : token.top) {
      top.push_back({.id = one.id, .reserved = 0, .logprob = one.logprob});
    }
    made.push_back({.id = token.id,
                    .top_count = static_cast<std::uint32_t>(top.size()),
                    .logprob = token.logprob,
                    .top = top.data()});
  }
  return made;
}

void ResultViews::set(const GenerateResult& from) {
  calls_ = capi::views(from.reply.calls);
  tops_.clear();
  logprobs_ = views(from.logprobs);
  prompt_logprobs_ = views(from.prompt_logprobs);
  others_.clear();
  more_.clear();
  for (const GenerateResult& other : from.more) {
    more_.push_back(others_.emplace_back(other).result());
  }
  result_ = {.size = sizeof(dh_result),
             .text = as_string(from.text),
             .finish_reason = as_string(from.finish_reason),
             .mode = as_string(from.mode),
             .reason = as_string(from.reason),
             .ids = from.ids.data(),
             .id_count = from.ids.size(),
             .accepted_per_turn = from.accepted_per_turn.data(),
             .turn_count = from.accepted_per_turn.size(),
             .width_per_turn = from.width_per_turn.data(),
             .width_count = from.width_per_turn.size(),
             .queue_s = from.timings.queue_s,
             .restore_s = from.timings.restore_s,
             .prefill_s = from.timings.prefill_s,
             .decode_s = from.timings.decode_s,
             .draft_s = from.timings.draft_s,
             .verify_s = from.timings.verify_s,
             .seed = from.seed.value_or(0),
             .has_seed = from.seed.has_value() ? 1 : 0,
             .reserved = 0,
             .reasoning = as_string(from.reply.reasoning),
             .content = as_string(from.reply.content),
             .tool_calls = calls_.data(),
             .tool_call_count = calls_.size(),
             .prompt_tokens = from.prompt_tokens,
             .reasoning_tokens = from.reasoning_tokens,
             .logprobs = logprobs_.data(),
             .logprob_count = logprobs_.size(),
             .prompt_logprobs = prompt_logprobs_.data(),
             .prompt_logprob_count = prompt_logprobs_.size(),
             .more = more_.data(),
             .more_count = more_.size()};
}

}  // namespace drafthouse::capi
