#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "drafthouse/sampling.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace drafthouse::cli {

// Adds what an id stands for: "text", and "bytes" where they are no valid UTF-8 by themselves (part
// of a character, which "text" shows as U+FFFD). Nothing without a tokenizer (null).
template <class Json>
void add_token_text(Json& object, const Tokenizer* tokenizer, std::uint32_t id) {
  if (tokenizer == nullptr) return;
  const std::string_view bytes = tokenizer->bytes_of(id);
  if (first_invalid_utf8(bytes) == std::string_view::npos) {
    object["text"] = bytes;
    return;
  }
  std::string rest(bytes);
  std::string text = take_settled_utf8(rest);
  if (!rest.empty()) text += "\uFFFD";  // the beginning of a character
  object["text"] = text;
  object["bytes"] = Json::array();
  for (const char byte : bytes) object["bytes"].push_back(static_cast<unsigned char>(byte));
}

// {"id", "text", "bytes", "logprob", "top"}; `top`: the same without "top". `Json` is
// nlohmann::json, which headers do not name.
template <class Json>
Json describe_logprob(const Tokenizer* tokenizer, const TokenLogprob& token) {
  const auto entry = [tokenizer](std::uint32_t id, double logprob) {
    Json object = {{"id", id}};
    add_token_text(object, tokenizer, id);
    object["logprob"] = logprob;
    return object;
  };
  Json object = entry(token.id, token.logprob);
  object["top"] = Json::array();
  for (const IdLogprob& one : token.top) object["top"].push_back(entry(one.id, one.logprob));
  return object;
}

}  // namespace drafthouse::cli
