#include "cache/state_digest.h"

#include <algorithm>
#include <string_view>

namespace drafthouse {
namespace {

const std::string* find(const StateFields& fields, std::string_view name) {
  const auto place = std::find_if(fields.begin(), fields.end(),
                                  [&](const auto& field) { return field.first == name; });
  return place == fields.end() ? nullptr : &place->second;
}

}  // namespace

std::string changed_field(const StateFields& before, const StateFields& after) {
  for (const auto& [name, value] : after) {
    const std::string* other = find(before, name);
    if (other == nullptr || *other != value) return name;
  }
  for (const auto& [name, value] : before) {
    if (find(after, name) == nullptr) return name;
  }
  return {};
}

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
