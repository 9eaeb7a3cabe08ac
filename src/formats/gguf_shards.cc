#include "formats/gguf_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "formats/limits.h"

namespace drafthouse {
namespace {

constexpr std::size_t kDigits = 5;

// Five digits as a number; 0 when they are something else.
std::uint32_t number_of(std::string_view digits) {
  std::uint32_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return 0;
    number = number * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return number;
}

}  // namespace

std::vector<std::string> gguf_shards(const std::string& path) {
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kEnd = ".gguf";
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() <= kTail) return {};
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !tail.ends_with(kEnd)) {
    return {};
  }
  const std::uint32_t number = number_of(tail.substr(1, kDigits));
  const std::uint32_t count = number_of(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (number == 0 || number > count || count > limits::kShardsMax) return {};
  std::vector<std::string> shards;
  const std::string name = path.substr(0, path.size() - kTail);
  for (std::uint32_t i = 1; i <= count; ++i) {
    shards.push_back(fmt::format("{}-{:05}-of-{:05}{}", name, i, count, kEnd));
  }
  return shards;
}

}  // namespace drafthouse
