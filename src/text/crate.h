#pragma once

#include <string>
#include <string_view>

#include "drafthouse/status.h"
#include "drafthouse_text.h"

namespace drafthouse::crate {

inline dht_view view(std::string_view text) { return dht_view{text.data(), text.size()}; }

inline std::string take(dht_text text) {
  std::string copy(text.data, text.size);
  dht_text_free(text);
  return copy;
}

// The Status for a code that is not DHT_OK; takes `error`. `where` begins the message.
inline Status failure(std::int32_t code, dht_text error, const std::string& where) {
  // Some of the crate's libraries point at the place in lines of their own.
  std::string message = where + ": ";
  bool gap = false;
  for (const char c : take(error)) {
    const bool space = c == ' ' || c == '\n';
    if (!space && gap) message += ' ';
    if (!space) message += c;
    gap = space;
  }
  switch (code) {
    case DHT_INVALID: return Status(Code::invalid_argument, message);
    case DHT_CORRUPT: return Status(Code::corrupt, message);
    case DHT_UNSUPPORTED: return Status(Code::unsupported, message);
    default: return Status(Code::internal, message);
  }
}

}  // namespace drafthouse::crate
