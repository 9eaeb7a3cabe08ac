#include <limits>
#include <utility>

#include "formats/gguf.h"

namespace drafthouse {

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> GgufMetadata::whole(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* plain = std::get_if<std::uint64_t>(value)) return *plain;
  if (const auto* negative = std::get_if<std::int64_t>(value); negative && *negative >= 0) {
    return static_cast<std::uint64_t>(*negative);
  }
  return std::nullopt;
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* real = std::get_if<double>(value)) return *real;
  if (const auto* plain = std::get_if<std::uint64_t>(value)) return static_cast<double>(*plain);
  if (const auto* negative = std::get_if<std::int64_t>(value)) {
    return static_cast<double>(*negative);
  }
  return std::nullopt;
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* flag = value == nullptr ? nullptr : std::get_if<bool>(value);
  return flag == nullptr ? std::nullopt : std::optional(*flag);
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

const std::vector<std::int64_t>* GgufMetadata::wholes(std::string_view key) const {
  const GgufValue* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(value);
}

const std::vector<std::string>* GgufMetadata::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  return value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
}

bool GgufMetadata::add(std::string key, GgufValue value) {
  return values_.try_emplace(std::move(key), std::move(value)).second;
}

}  // namespace drafthouse
