#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/tokenizer_source.h"

struct dht_tokenizer;

namespace drafthouse {

using TokenId = std::uint32_t;

// Text to token ids and back, from tokenizer.json or a GGUF vocabulary. Immutable, thread-safe.
class Tokenizer {
 public:
  // corrupt / unsupported with one line that names the file and the reason.
  static Result<std::shared_ptr<const Tokenizer>> create(const TokenizerSource& source);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // `add_special`: apply the post-processor (BOS where the tokenizer has one). Special tokens that
  // stand in the text are always recognised. `text` may hold any bytes; invalid UTF-8 is replaced.
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special) const;

  // Text of all ids, special tokens included unless `skip_special`. Unknown ids give nothing.
  Result<std::string> decode(std::span<const TokenId> ids, bool skip_special) const;

  // The bytes that one id stands for in running text: byte-level and byte-fallback tokens give raw
  // bytes (perhaps part of a character), added tokens their text, unknown ids nothing.
  std::string_view bytes_of(TokenId id) const;
  bool is_special(TokenId id) const;

  // Ids in [0, size()) that the tokenizer knows end here; models may have more rows.
  std::uint32_t size() const;
  // Bytes of the longest token's text; added tokens count too.
  std::size_t longest_token() const;
  // The id of an added or vocabulary token with exactly this text, or -1.
  std::int64_t id_of(std::string_view token) const;
  // The crate's, for this folder only.
  const dht_tokenizer* handle() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace drafthouse
