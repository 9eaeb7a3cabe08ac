#include "text/utf8.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace drafthouse {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Shape : std::uint8_t { valid, invalid, incomplete };

struct Part {
  Shape shape;
  std::size_t size;
};

struct Lead {
  std::size_t following;    // continuation bytes; 0: not a lead byte
  unsigned char low, high;  // range of the first of them (Unicode, table 3-7)
};

Lead lead(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

// Requires !text.empty().
Part first_part(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at(0) < 0x80) return {Shape::valid, 1};
  const Lead begin = lead(at(0));
  if (begin.following == 0) return {Shape::invalid, 1};
  for (std::size_t i = 1; i <= begin.following; ++i) {
    if (i == text.size()) return {Shape::incomplete, i};
    const unsigned char low = i == 1 ? begin.low : 0x80;
    const unsigned char high = i == 1 ? begin.high : 0xBF;
    if (at(i) < low || at(i) > high) return {Shape::invalid, i};
  }
  return {Shape::valid, begin.following + 1};
}

}  // namespace

std::size_t first_invalid_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Part part = first_part(bytes.substr(at));
    if (part.shape != Shape::valid) return at;
    at += part.size;
  }
  return std::string_view::npos;
}

std::string take_settled_utf8(std::string& bytes) {
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Part part = first_part(rest);
    if (part.shape == Shape::incomplete) break;
    out.append(part.shape == Shape::valid ? rest.substr(0, part.size) : kReplacement);
    rest.remove_prefix(part.size);
  }
  bytes.erase(0, bytes.size() - rest.size());
  return out;
}

}  // namespace drafthouse
