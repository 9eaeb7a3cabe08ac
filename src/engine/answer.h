#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/task.h"
#include "text/detokenizer.h"
#include "text/reply_parser.h"
#include "text/thought.h"
#include "text/tokenizer.h"

namespace drafthouse {

// The growing answer of one request: turns ids into text, splits it into thoughts, content and
// calls, and decides in token order what ends it, an end id, a stop string or the limit, whichever
// comes first. Confined to one thread at a time.
class Answer {
 public:
  struct Limits {
    std::size_t ids = 0;                      // at most; at least 1
    std::vector<std::uint32_t> end_ids = {};  // ascending
    std::vector<std::string> stop = {};
    ReplyParser::Options reply = {};
  };

  // `tokenizer` may be null: then there is no text and stop strings never match.
  Answer(std::shared_ptr<const Tokenizer> tokenizer, Limits limits);

  // Takes the ids of a turn in order, up to the one that ends the answer. Returns the text that
  // they complete.
  AnswerPiece take(std::span<const std::uint32_t> ids);
  // Ends the answer early, with what text is complete. Returns the last piece of text.
  AnswerPiece end(std::string_view reason);

  bool finished() const { return !finish_reason_.empty(); }
  // "stop", "length", "tool_calls", or what end() was given; empty while it goes on.
  const std::string& finish_reason() const { return finish_reason_; }
  const std::vector<std::uint32_t>& ids() const { return ids_; }
  std::size_t left() const { return limits_.ids - ids_.size(); }
  std::uint32_t reasoning_ids() const { return thought_.ids(); }

 private:
  void read(std::uint32_t id, AnswerPiece& piece);
  void show(const std::string& text, AnswerPiece& piece);
  void rest(AnswerPiece& piece);

  Limits limits_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<Detokenizer> text_;
  StopMatcher stops_;
  ReplyParser parser_;
  ThoughtTracker thought_;
  std::vector<std::uint32_t> marker_ids_;  // special tokens that the parser sees
  // Those that came, each with the bytes of text before it; shown once the text up to there is.
  std::deque<std::pair<std::size_t, std::uint32_t>> waiting_;
  std::size_t read_ = 0;   // bytes of text that the ids gave
  std::size_t shown_ = 0;  // of them, behind the stop strings
  std::vector<std::uint32_t> ids_;
  std::string finish_reason_;
};

}  // namespace drafthouse
