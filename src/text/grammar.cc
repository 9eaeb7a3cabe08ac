#include "text/grammar.h"

#include <fmt/format.h>

#include <utility>

#include "text/crate.h"

namespace drafthouse {
namespace {

dht_vocabulary* as_vocabulary(void* handle) { return static_cast<dht_vocabulary*>(handle); }
dht_matcher* as_matcher(void* handle) { return static_cast<dht_matcher*>(handle); }

std::string name_of(GrammarForm form) {
  switch (form) {
    case GrammarForm::json_schema: return "the JSON schema";
    case GrammarForm::regex: return "the regular expression";
    default: return "the grammar";
  }
}

}  // namespace

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::create(
    const Tokenizer& tokenizer, std::span<const std::uint32_t> end_ids) {
  dht_vocabulary* handle = nullptr;
  dht_text error{};
  const std::int32_t code =
      dht_vocabulary_create(tokenizer.handle(), end_ids.data(), end_ids.size(), &handle, &error);
  if (code != DHT_OK) return crate::failure(code, error, "constraining answers");
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(handle));
}

GrammarVocabulary::~GrammarVocabulary() { dht_vocabulary_free(as_vocabulary(handle_)); }

Result<std::unique_ptr<Grammar>> Grammar::create(
    std::shared_ptr<const GrammarVocabulary> vocabulary, const GrammarSpec& spec) {
  const std::int32_t form = spec.form == GrammarForm::json_schema ? DHT_JSON_SCHEMA
                            : spec.form == GrammarForm::regex     ? DHT_REGEX
                                                                  : DHT_LARK;
  dht_matcher* handle = nullptr;
  dht_text error{};
  const std::int32_t code = dht_matcher_create(as_vocabulary(vocabulary->handle_), form,
                                               crate::view(spec.text), &handle, &error);
  if (code != DHT_OK) return crate::failure(code, error, name_of(spec.form));
  return std::unique_ptr<Grammar>(new Grammar(std::move(vocabulary), handle));
}

Grammar::~Grammar() { dht_matcher_free(as_matcher(handle_)); }

Status Grammar::mask(std::span<std::uint32_t> bits) {
  dht_text error{};
  const std::int32_t code = dht_matcher_mask(as_matcher(handle_), bits.data(), bits.size(), &error);
  return code == DHT_OK ? Status() : crate::failure(code, error, "the grammar");
}

Result<bool> Grammar::consume(std::uint32_t id) {
  dht_text error{};
  std::int32_t taken = 0;
  const std::int32_t code = dht_matcher_consume(as_matcher(handle_), id, &taken, &error);
  if (code != DHT_OK) return crate::failure(code, error, "the grammar");
  return taken != 0;
}

Status Grammar::rollback(std::size_t ids) {
  dht_text error{};
  const std::int32_t code = dht_matcher_rollback(as_matcher(handle_), ids, &error);
  return code == DHT_OK ? Status() : crate::failure(code, error, "the grammar");
}

Status Grammar::reset() {
  dht_text error{};
  const std::int32_t code = dht_matcher_reset(as_matcher(handle_), &error);
  return code == DHT_OK ? Status() : crate::failure(code, error, "the grammar");
}

Result<std::unique_ptr<Grammar>> Grammar::clone() const {
  dht_matcher* handle = nullptr;
  dht_text error{};
  const std::int32_t code = dht_matcher_clone(as_matcher(handle_), &handle, &error);
  if (code != DHT_OK) return crate::failure(code, error, "the grammar");
  return std::unique_ptr<Grammar>(new Grammar(vocabulary_, handle));
}

}  // namespace drafthouse
