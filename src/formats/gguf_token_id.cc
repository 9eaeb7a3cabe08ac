#include "formats/gguf_token_id.h"

#include <fmt/format.h>

#include <limits>

#include "formats/printable.h"

namespace drafthouse {
namespace {

std::string text_of(const GgufValue& value) {
  if (const auto* plain = std::get_if<std::uint64_t>(&value)) return fmt::to_string(*plain);
  if (const auto* negative = std::get_if<std::int64_t>(&value)) return fmt::to_string(*negative);
  if (const auto* real = std::get_if<double>(&value)) return fmt::to_string(*real);
  if (const auto* flag = std::get_if<bool>(&value)) return fmt::to_string(*flag);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return fmt::format("\"{}\"", printable(*text));
  }
  return "a list";
}

}  // namespace

Result<std::optional<std::uint32_t>> gguf_token_id(const std::string& path,
                                                   const GgufMetadata& metadata,
                                                   std::string_view key, std::size_t count) {
  const GgufValue* value = metadata.find(key);
  if (value == nullptr) return std::optional<std::uint32_t>();
  const auto id = metadata.whole(key);
  const auto* negative = std::get_if<std::int64_t>(value);
  if ((negative != nullptr && *negative == -1) ||
      (id && *id == std::numeric_limits<std::uint32_t>::max())) {
    return std::optional<std::uint32_t>();
  }
  if (!id || *id >= count) {
    return Status(Code::corrupt, fmt::format("{}: {} is {}, which is not one of the {} tokens",
                                             path, key, text_of(*value), count));
  }
  return std::optional(static_cast<std::uint32_t>(*id));
}

}  // namespace drafthouse
