#include "text/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "text/crate.h"

namespace drafthouse {

struct Tokenizer::State {
  State(dht_tokenizer* library, std::string file) : handle(library), origin(std::move(file)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { dht_tokenizer_free(handle); }

  dht_tokenizer* handle;
  std::string origin;
  std::optional<TokenId> bos;  // where the post-processor does not add it
  std::size_t longest_token = 0;
};

namespace {

std::int32_t from_gguf(const GgufVocabulary& gguf, dht_tokenizer** out, dht_text* error) {
  std::vector<dht_view> tokens;
  tokens.reserve(gguf.tokens.size());
  for (const std::string& token : gguf.tokens) tokens.push_back(crate::view(token));
  std::vector<dht_view> merges;
  merges.reserve(gguf.merges.size());
  for (const std::string& merge : gguf.merges) merges.push_back(crate::view(merge));

  dht_gguf_vocabulary raw{};
  raw.model = crate::view(gguf.model);
  raw.pre = crate::view(gguf.pre);
  raw.tokens = tokens.data();
  raw.token_count = tokens.size();
  raw.token_types = gguf.token_types.data();
  raw.token_type_count = gguf.token_types.size();
  raw.merges = merges.data();
  raw.merge_count = merges.size();
  return dht_tokenizer_from_gguf(&raw, out, error);
}

bool config_adds_bos(const TokenizerSource& source) {
  if (!source.tokenizer_config_json) return false;
  const auto config = nlohmann::json::parse(*source.tokenizer_config_json, nullptr, false);
  const auto found = config.is_object() ? config.find("add_bos_token") : config.end();
  return found != config.end() && found->is_boolean() && found->get<bool>();
}

// Whether texts begin with the BOS token: as the file says, else as llama.cpp has it for the rule
// that the file names. Gemma 4 needs it whatever the file says.
bool gguf_adds_bos(const GgufVocabulary& gguf) {
  if (gguf.model == "gemma4") return true;
  const bool usual = gguf.pre == "llama-bpe" || gguf.pre == "llama3" || gguf.pre == "llama-v3" ||
                     gguf.pre == "lfm2";
  return gguf.add_bos.value_or(usual);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

const dht_tokenizer* Tokenizer::handle() const { return state_->handle; }

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(const TokenizerSource& source) {
  if (!source.has_tokenizer()) {
    return Status(Code::not_found, source.origin + ": there is no tokenizer");
  }
  dht_tokenizer* handle = nullptr;
  dht_text error{};
  const std::int32_t code =
      source.tokenizer_json
          ? dht_tokenizer_from_json(crate::view(*source.tokenizer_json), &handle, &error)
          : from_gguf(*source.gguf, &handle, &error);
  if (code != DHT_OK) {
    // A panic of the library on somebody's file is that file's fault as far as the caller goes.
    const std::int32_t blame = code == DHT_INTERNAL ? std::int32_t{DHT_CORRUPT} : code;
    return crate::failure(blame, error, source.origin);
  }
  auto state = std::make_unique<State>(handle, source.origin);
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(state)));
  for (TokenId id = 0; id < tokenizer->size(); ++id) {
    std::size_t& longest = tokenizer->state_->longest_token;
    longest = std::max(longest, tokenizer->bytes_of(id).size());
  }

  if (source.tokenizer_json) {
    if (config_adds_bos(source) && source.bos_token) {
      const Result<std::vector<TokenId>> nothing = tokenizer->encode("", true);
      const std::int64_t bos = tokenizer->id_of(*source.bos_token);
      if (nothing.ok() && nothing.value().empty() && bos >= 0) {
        tokenizer->state_->bos = static_cast<TokenId>(bos);
      }
    }
  } else if (gguf_adds_bos(*source.gguf) && source.gguf->bos_id) {
    if (*source.gguf->bos_id >= tokenizer->size()) {
      return Status(Code::corrupt, source.origin + ": the BOS id is not in the vocabulary");
    }
    tokenizer->state_->bos = *source.gguf->bos_id;
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, bool add_special) const {
  dht_ids raw{};
  dht_text error{};
  const std::int32_t code =
      dht_tokenizer_encode(state_->handle, crate::view(text), add_special ? 1 : 0, &raw, &error);
  if (code != DHT_OK) return crate::failure(code, error, state_->origin);
  std::vector<TokenId> ids;
  ids.reserve(raw.size + 1);
  if (add_special && state_->bos) ids.push_back(*state_->bos);
  ids.insert(ids.end(), raw.data, raw.data + raw.size);
  dht_ids_free(raw);
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  dht_text text{};
  dht_text error{};
  const std::int32_t code = dht_tokenizer_decode(state_->handle, ids.data(), ids.size(),
                                                 skip_special ? 1 : 0, &text, &error);
  if (code != DHT_OK) return crate::failure(code, error, state_->origin);
  return crate::take(text);
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  const dht_view bytes = dht_tokenizer_bytes(state_->handle, id);
  return std::string_view(bytes.data, bytes.size);
}

bool Tokenizer::is_special(TokenId id) const {
  return dht_tokenizer_is_special(state_->handle, id) != 0;
}

std::uint32_t Tokenizer::size() const { return dht_tokenizer_size(state_->handle); }

std::size_t Tokenizer::longest_token() const { return state_->longest_token; }

std::int64_t Tokenizer::id_of(std::string_view token) const {
  return dht_tokenizer_id(state_->handle, crate::view(token));
}

}  // namespace drafthouse
