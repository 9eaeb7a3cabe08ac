#include "engine/grammar_compiler.h"

#include <utility>

namespace drafthouse {
namespace {

class GrammarConstraint final : public Constraint {
 public:
  explicit GrammarConstraint(std::unique_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {}

  Status mask(std::span<std::uint32_t> bits) override { return grammar_->mask(bits); }
  Result<bool> consume(std::uint32_t id) override { return grammar_->consume(id); }
  Status rollback(std::size_t ids) override { return grammar_->rollback(ids); }
  Status reset() override { return grammar_->reset(); }
  Result<std::shared_ptr<Constraint>> clone() const override {
    Result<std::unique_ptr<Grammar>> made = grammar_->clone();
    if (!made.ok()) return made.status();
    return std::shared_ptr<Constraint>(
        std::make_shared<GrammarConstraint>(std::move(made).value()));
  }

 private:
  std::unique_ptr<Grammar> grammar_;
};

}  // namespace

Result<std::shared_ptr<Constraint>> GrammarCompiler::compile(const GrammarSpec& spec) const {
  if (tokenizer_ == nullptr) {
    return Status(Code::unsupported,
                  "this model has no tokenizer, so that no grammar can constrain its answers");
  }
  if (end_ids_.empty()) {
    return Status(Code::unsupported,
                  "this model's files name no id that ends an answer (eos_token_id), so that a "
                  "grammar could not end one");
  }
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (vocabulary_ == nullptr) {
      auto made = GrammarVocabulary::create(*tokenizer_, end_ids_);
      if (!made.ok()) return made.status();
      vocabulary_ = std::move(made).value();
    }
    vocabulary = vocabulary_;
  }
  auto grammar = Grammar::create(std::move(vocabulary), spec);
  if (!grammar.ok()) return grammar.status();
  return std::shared_ptr<Constraint>(
      std::make_shared<GrammarConstraint>(std::move(grammar).value()));
}

}  // namespace drafthouse
