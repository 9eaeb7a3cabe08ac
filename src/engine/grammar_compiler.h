#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "drafthouse/sampling.h"
#include "drafthouse/status.h"
#include "sampling/constraint.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace drafthouse {

// Makes constraints of grammars for one loaded pair. Thread-safe: requests are compiled where they
// are submitted, not on the engine's thread.
class GrammarCompiler {
 public:
  // `tokenizer` may be null: then every grammar is unsupported.
  GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::uint32_t> end_ids)
      : tokenizer_(std::move(tokenizer)), end_ids_(std::move(end_ids)) {}

  // Requires a form.
  Result<std::shared_ptr<Constraint>> compile(const GrammarSpec& spec) const;

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::uint32_t> end_ids_;
  mutable std::mutex lock_;
  // Made for the first grammar.
  mutable std::shared_ptr<const GrammarVocabulary> vocabulary_;
};

}  // namespace drafthouse
