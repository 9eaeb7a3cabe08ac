#include "cli/byte_size.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <string>

namespace drafthouse::cli {

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped == text.data()) return std::nullopt;
  std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  unsigned shift = 0;
  if (!unit.empty() && unit != "B") {
    constexpr std::string_view kLetters = "KMGT";
    const char letter = unit.front() == 'k' ? 'K' : unit.front();
    const std::size_t power = kLetters.find(letter);
    if (power == std::string_view::npos) return std::nullopt;
    shift = 10 * static_cast<unsigned>(power + 1);
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "B" && unit != "iB") return std::nullopt;
  }
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

CLI::Validator bytes_check() {
  const auto refuse = [](const std::string& value) -> std::string {
    if (parse_bytes(value).has_value()) return "";
    return fmt::format("'{}' is not a size: give bytes, or 512M, 20GiB", value);
  };
  return CLI::Validator(refuse, "");
}

}  // namespace drafthouse::cli
