#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drafthouse/engine.h"
#include "drafthouse/status.h"
#include "engine/reply_constraint.h"
#include "sampling/sampler.h"
#include "text/reply_parser.h"
#include "text/tokenizer.h"

namespace drafthouse {

// What a pair allows its requests.
struct RequestLimits {
  std::uint32_t vocab_size = 0;
  std::uint32_t choices = 0;     // ids below this may be generated
  std::uint32_t context = 0;     // positions of a sequence
  std::uint32_t block_size = 0;  // of the draft; 0 without one
  std::span<const std::uint32_t> eos_ids = {};
};

// invalid_argument or context_overflow, naming the field.
Status check_request(const GenerateRequest& request, const RequestLimits& limits);
// Whether a budget of thoughts means something for replies in this format.
Status check_budget(ReplyFormat format);

// Ascending; any of them ends an answer to this request.
std::vector<std::uint32_t> end_ids(const GenerateRequest& request,
                                   std::span<const std::uint32_t> eos_ids);

// How the reply to a request is read. `own`: the model's format; `tokenizer` may be null.
ReplyParser::Options reply_start(const GenerateRequest& request, ReplyFormat own,
                                 const Tokenizer* tokenizer);

// What the reply's thoughts are allowed; none where nothing follows from it. invalid_argument for a
// budget where there are no thoughts.
Result<std::optional<ReplyRule>> reply_rule(const GenerateRequest& request,
                                            const RequestLimits& limits, ReplyFormat own,
                                            const Tokenizer* tokenizer);

// What the request's sampler does; none where the most likely ids are all that is wanted. A request
// without a seed gets a random one.
std::optional<SamplerJob> sampler_job(const GenerateRequest& request, const RequestLimits& limits);

}  // namespace drafthouse
