#include <fmt/format.h>

#include <cmath>

#include "drafthouse/engine.h"
#include "engine/internals.h"

namespace drafthouse {

Result<ScoreResult> Engine::score(const ScoreRequest& request) {
  Internals& parts = *internals_;
  const std::vector<std::uint32_t>& ids = request.ids;
  if (ids.size() < 2) {
    return Status(Code::invalid_argument, "scoring needs at least two ids");
  }
  if (ids.size() > parts.info.context) {
    return Status(Code::context_overflow,
                  fmt::format("{} ids do not fit into a sequence of {} positions", ids.size(),
                              parts.info.context));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= parts.info.vocab_size) {
      return Status(Code::invalid_argument,
                    fmt::format("id {} (at {}) is outside the model's vocabulary of {}", ids[i], i,
                                parts.info.vocab_size));
    }
  }
  TurnRunner& runner = *parts.runner;
  Result<Sequence> sequence = runner.start(false);
  if (!sequence.ok()) return sequence.status();

  const std::size_t count = ids.size() - 1;
  const std::uint32_t vocabulary = parts.info.vocab_size;
  ScoreResult result;
  result.logprob.resize(count);
  result.top.resize(count);
  const std::uint32_t width = request.width == 0 ? runner.limits().prefill_chunk : request.width;
  const Status fed = runner.feed(
      sequence.value(), std::span<const std::uint32_t>(ids).first(count), width, request.cancel,
      [&](std::size_t first, const float* logits, std::uint32_t rows) {
        parts.device->log_probabilities(logits, rows, vocabulary, vocabulary,
                                        ids.data() + first + 1, result.logprob.data() + first);
        parts.device->argmax(logits, rows, vocabulary, runner.limits().choices, vocabulary,
                             result.top.data() + first);
      });
  if (!fed.ok()) return fed;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isfinite(result.logprob[i])) continue;
    return Status(
        Code::corrupt,
        fmt::format("the model's logits after id {} are not finite numbers; its weights are "
                    "damaged or do not belong to its configuration",
                    i));
  }
  return result;
}

}  // namespace drafthouse
