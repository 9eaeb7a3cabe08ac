#pragma once

#include <deque>
#include <vector>

#include "drafthouse/drafthouse.h"
#include "drafthouse/engine.h"

namespace drafthouse::capi {

// Views of calls into `from`, which must outlive them.
std::vector<dh_tool_call> views(const std::vector<ToolCall>& from);

// A result as callers of the C ABI see it: views into the C++ one, which must outlive it, and the
// arrays that those need. Neither copied nor moved.
class ResultViews {
 public:
  ResultViews() = default;
  explicit ResultViews(const GenerateResult& from) { set(from); }
  ResultViews(const ResultViews&) = delete;
  ResultViews& operator=(const ResultViews&) = delete;

  void set(const GenerateResult& from);
  const dh_result& result() const { return result_; }

 private:
  std::vector<dh_token_logprob> views(const std::vector<TokenLogprob>& from);

  dh_result result_ = {};
  std::vector<dh_tool_call> calls_;
  std::deque<std::vector<dh_id_logprob>> tops_;
  std::vector<dh_token_logprob> logprobs_;
  std::vector<dh_token_logprob> prompt_logprobs_;
  std::deque<ResultViews> others_;
  std::vector<dh_result> more_;
};

}  // namespace drafthouse::capi
