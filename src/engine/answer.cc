#include "engine/answer.h"

#include <algorithm>
#include <utility>

namespace drafthouse {

Answer::Answer(std::shared_ptr<const Tokenizer> tokenizer, Limits limits)
    : limits_(std::move(limits)), stops_(limits_.stop) {
  if (tokenizer != nullptr) text_.emplace(std::move(tokenizer), true);
}

std::string Answer::take(std::span<const std::uint32_t> ids) {
  std::string piece;
  for (const std::uint32_t id : ids) {
    if (finished()) break;
    ids_.push_back(id);
    if (std::binary_search(limits_.end_ids.begin(), limits_.end_ids.end(), id)) {
      finish_reason_ = "stop";
    } else if (text_.has_value()) {
      piece += stops_.push(text_->push(id));
      if (stops_.stopped()) finish_reason_ = "stop";
    }
    if (!finished() && ids_.size() >= limits_.ids) finish_reason_ = "length";
  }
  if (finished()) piece += rest();
  return piece;
}

std::string Answer::end(std::string_view reason) {
  if (finished()) return {};
  finish_reason_ = reason;
  return rest();
}

std::string Answer::rest() {
  if (!text_.has_value() || stops_.stopped()) return {};
  std::string piece = stops_.push(text_->finish());
  piece += stops_.finish();
  return piece;
}

}  // namespace drafthouse
