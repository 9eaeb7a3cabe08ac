#include "formats/printable.h"

#include <fmt/format.h>

#include <cstddef>

namespace drafthouse {

std::string printable(std::string_view text) {
  constexpr std::size_t kCharsMax = 120;
  std::string out;
  for (const char c : text) {
    if (out.size() >= kCharsMax) {
      out += "...";
      break;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace drafthouse
