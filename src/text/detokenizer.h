#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace drafthouse {

// Turns ids into text as they come. Confined to one thread. Never emits part of a character.
class Detokenizer {
 public:
  // `skip_special`: special tokens give no text.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

  // The text that `id` completes; may be empty while a character is incomplete.
  std::string push(TokenId id);
  // What is left at the end; incomplete bytes become U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  std::string pending_;
};

// Finds stop strings in streamed text, also across pieces. Confined to one thread.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);

  // Text that can be shown now: everything but the longest tail that may begin a stop string. Once
  // a stop string is complete, stopped() is true and the text ends before it; later text is
  // dropped.
  std::string push(std::string_view text);
  // The tail that was held back, when no stop string came.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace drafthouse
