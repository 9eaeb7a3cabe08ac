#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "drafthouse/sampling.h"
#include "drafthouse/status.h"
#include "text/tokenizer.h"

namespace drafthouse {

// A tokenizer's vocabulary as grammars see it. Immutable, thread-safe; making one takes a while
// (tens of milliseconds), so it is made once.
class GrammarVocabulary {
 public:
  // `end_ids`: what ends an answer; allowed where the grammar is satisfied.
  static Result<std::shared_ptr<const GrammarVocabulary>> create(
      const Tokenizer& tokenizer, std::span<const std::uint32_t> end_ids);
  ~GrammarVocabulary();
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;

 private:
  friend class Grammar;
  explicit GrammarVocabulary(void* handle) : handle_(handle) {}
  void* handle_;
};

// Where one answer stands in its grammar (a JSON schema, a regular expression, a Lark grammar; by
// llguidance). Used by one thread at a time.
class Grammar {
 public:
  // invalid_argument, with the place, for one that cannot be compiled or is too large.
  static Result<std::unique_ptr<Grammar>> create(
      std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarSpec& spec);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // One bit per id, lowest first: which may come next. End ids alone once nothing else can follow.
  Status mask(std::span<std::uint32_t> bits);
  // Goes on by one id; false, and nothing happens, where it may not come next.
  Result<bool> consume(std::uint32_t id);
  // Takes the last ids back, end ids not among them. To the beginning.
  Status rollback(std::size_t ids);
  Status reset();
  // Another one at the same place; the two share nothing that changes.
  Result<std::unique_ptr<Grammar>> clone() const;

 private:
  Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, void* handle)
      : vocabulary_(std::move(vocabulary)), handle_(handle) {}

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  void* handle_;
};

}  // namespace drafthouse
