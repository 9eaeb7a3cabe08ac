#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace drafthouse {

// The growing answer of one request: turns ids into text and decides in token order what ends it, an
// end id, a stop string or the limit, whichever comes first. Confined to one thread at a time.
class Answer {
 public:
  struct Limits {
    std::size_t ids = 0;        // at most; at least 1
    std::vector<std::uint32_t> end_ids = {};  // ascending
    std::vector<std::string> stop = {};
  };

  // `tokenizer` may be null: then there is no text and stop strings never match.
  Answer(std::shared_ptr<const Tokenizer> tokenizer, Limits limits);

  // Takes the ids of a turn in order, up to the one that ends the answer. Returns the text that they
  // complete.
  std::string take(std::span<const std::uint32_t> ids);
  // Ends the answer early, with what text is complete. Returns the last piece of text.
  std::string end(std::string_view reason);

  bool finished() const { return !finish_reason_.empty(); }
  // "stop", "length", or what end() was given; empty while it goes on.
  const std::string& finish_reason() const { return finish_reason_; }
  const std::vector<std::uint32_t>& ids() const { return ids_; }
  std::size_t left() const { return limits_.ids - ids_.size(); }

 private:
  std::string rest();

  Limits limits_;
  std::optional<Detokenizer> text_;
  StopMatcher stops_;
  std::vector<std::uint32_t> ids_;
  std::string finish_reason_;
};

}  // namespace drafthouse
