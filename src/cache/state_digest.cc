#include "cache/state_digest.h"

namespace drafthouse {

std::string StateDigest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace drafthouse
