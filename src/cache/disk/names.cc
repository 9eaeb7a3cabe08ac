#include "cache/disk/names.h"

#include <charconv>

namespace drafthouse {
namespace {

constexpr std::string_view kManifestSuffix = ".manifest";
constexpr std::string_view kPagesSuffix = ".pages";
constexpr std::size_t kRunDigits = 2 * sizeof(RunId);

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool drop_suffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::string to_hex(const std::uint8_t* bytes, std::size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

bool from_hex(std::string_view text, std::uint8_t* bytes, std::size_t count) {
  if (text.size() != 2 * count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const int high = digit_of(text[2 * i]);
    const int low = digit_of(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

std::string manifest_name(const RunId& run) { return to_hex(run) + std::string(kManifestSuffix); }

std::string pages_name(const RunId& run, std::uint32_t group) {
  return to_hex(run) + "." + std::to_string(group) + std::string(kPagesSuffix);
}

std::optional<RunFileName> parse_run_file(std::string_view name) {
  RunFileName parsed;
  parsed.temporary = drop_suffix(name, kTemporarySuffix);
  if (name.size() < kRunDigits ||
      !from_hex(name.substr(0, kRunDigits), parsed.run.bytes.data(), sizeof(RunId))) {
    return std::nullopt;
  }
  name.remove_prefix(kRunDigits);
  if (name == kManifestSuffix) {
    parsed.is_manifest = true;
    return parsed;
  }
  if (!name.starts_with('.') || !drop_suffix(name, kPagesSuffix)) return std::nullopt;
  name.remove_prefix(1);
  // "07" is not a name that we give.
  if (name.empty() || name.size() > 3 || (name.size() > 1 && name[0] == '0')) return std::nullopt;
  const auto result = std::from_chars(name.data(), name.data() + name.size(), parsed.group);
  if (result.ec != std::errc() || result.ptr != name.data() + name.size()) return std::nullopt;
  return parsed;
}

std::optional<RootName> parse_root(std::string_view name) {
  RootName root;
  if (!from_hex(name, root.bytes.data(), sizeof(RootName))) return std::nullopt;
  return root;
}

bool is_digest(std::string_view name) {
  std::array<std::uint8_t, 32> bytes;
  return from_hex(name, bytes.data(), bytes.size());
}

}  // namespace drafthouse
