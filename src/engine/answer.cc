#include "engine/answer.h"

#include <algorithm>

namespace drafthouse {
namespace {

void add(ReplyPart&& from, ReplyPart& to) {
  to.reasoning += from.reasoning;
  to.content += from.content;
  std::move(from.calls.begin(), from.calls.end(), std::back_inserter(to.calls));
}

}  // namespace

Answer::Answer(std::shared_ptr<const Tokenizer> tokenizer, Limits limits)
    : limits_(std::move(limits)),
      tokenizer_(std::move(tokenizer)),
      stops_(limits_.stop),
      parser_(limits_.reply),
      thought_(limits_.reply.format, limits_.reply.in_reasoning) {
  if (tokenizer_ == nullptr) return;
  text_.emplace(tokenizer_, true);
  for (const std::string_view token : marker_tokens(limits_.reply.format)) {
    const std::int64_t id = tokenizer_->id_of(token);
    if (id < 0 || !tokenizer_->is_special(static_cast<TokenId>(id))) continue;
    marker_ids_.push_back(static_cast<std::uint32_t>(id));
  }
}

void Answer::show(const std::string& text, AnswerPiece& piece) {
  std::size_t done = 0;
  shown_ += text.size();
  for (; !waiting_.empty() && waiting_.front().first <= shown_; waiting_.pop_front()) {
    const std::size_t upto = waiting_.front().first - (shown_ - text.size());
    add(parser_.push(std::string_view(text).substr(done, upto - done)), piece.reply);
    done = upto;
    add(parser_.push(tokenizer_->bytes_of(waiting_.front().second)), piece.reply);
  }
  add(parser_.push(std::string_view(text).substr(done)), piece.reply);
  piece.text += text;
}

void Answer::read(std::uint32_t id, AnswerPiece& piece) {
  thought_.push(tokenizer_->bytes_of(id));
  if (std::find(marker_ids_.begin(), marker_ids_.end(), id) != marker_ids_.end()) {
    waiting_.emplace_back(read_, id);
  }
  const std::string text = text_->push(id);
  read_ += text.size();
  show(stops_.push(text), piece);
}

AnswerPiece Answer::take(std::span<const std::uint32_t> ids) {
  AnswerPiece piece;
  for (const std::uint32_t id : ids) {
    if (finished()) break;
    ids_.push_back(id);
    if (std::binary_search(limits_.end_ids.begin(), limits_.end_ids.end(), id)) {
      finish_reason_ = "stop";
    } else if (text_.has_value()) {
      read(id, piece);
      if (stops_.stopped()) finish_reason_ = "stop";
    }
    if (!finished() && ids_.size() >= limits_.ids) finish_reason_ = "length";
  }
  if (finished()) rest(piece);
  return piece;
}

AnswerPiece Answer::end(std::string_view reason) {
  AnswerPiece piece;
  if (finished()) return piece;
  finish_reason_ = reason;
  rest(piece);
  return piece;
}

void Answer::rest(AnswerPiece& piece) {
  if (!text_.has_value()) return;
  if (!stops_.stopped()) {
    const std::string text = text_->finish();
    read_ += text.size();
    show(stops_.push(text) + stops_.finish(), piece);
  }
  add(parser_.finish(), piece.reply);
  const bool called = parser_.ends_with_call() && !stops_.stopped();
  if (finish_reason_ == "stop" && called) finish_reason_ = "tool_calls";
}

}  // namespace drafthouse
