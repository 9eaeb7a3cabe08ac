#include "cli/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "formats/printable.h"

namespace drafthouse::cli {
namespace {

using nlohmann::json;

Result<std::string> read_all(int descriptor, const std::string& origin) {
  std::string text;
  std::array<char, 1 << 16> part;
  while (true) {
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Status(Code::not_found, fmt::format("{}: {}", origin, std::strerror(errno)));
    }
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > kInputBytesMax) {
      return Status(Code::invalid_argument,
                    fmt::format("{}: more than {} MiB, which is the most that is read", origin,
                                kInputBytesMax >> 20));
    }
  }
}

std::string shortened(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40));
}

}  // namespace

std::string input_name(const std::string& path) {
  return path == "-" ? "standard input" : printable(path);
}

Result<std::string> read_input(const std::string& path) {
  if (path == "-") return read_all(STDIN_FILENO, input_name(path));
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    const bool json = path.starts_with('[') || path.starts_with('{');
    return Status(Code::not_found,
                  fmt::format("cannot read {}: {}{}", input_name(path), std::strerror(error),
                              json ? "; a file is wanted, or - for standard input" : ""));
  }
  Result<std::string> text = read_all(descriptor, input_name(path));
  ::close(descriptor);
  return text;
}

Result<std::vector<std::uint32_t>> parse_ids(std::string_view text, std::string_view origin) {
  const auto refuse = [&](std::string_view why) {
    return Status(
        Code::invalid_argument,
        fmt::format("{}: {}; expected a JSON list of token ids like [1, 2, 3]", origin, why));
  };
  json list = json::parse(text, nullptr, false);
  if (list.is_discarded()) return refuse("not JSON");
  if (list.is_object() && list.contains("ids")) list = json(std::move(list["ids"]));
  if (!list.is_array()) return refuse(fmt::format("{} is not a list", shortened(list)));
  std::vector<std::uint32_t> ids;
  ids.reserve(list.size());
  for (const json& element : list) {
    if (!element.is_number_unsigned() ||
        element.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max()) {
      return refuse(fmt::format("element {} is {}", ids.size(), shortened(element)));
    }
    ids.push_back(static_cast<std::uint32_t>(element.get<std::uint64_t>()));
  }
  return ids;
}

Result<std::vector<std::uint32_t>> read_ids(const std::string& path) {
  Result<std::string> text = read_input(path);
  if (!text.ok()) return text.status();
  return parse_ids(text.value(), input_name(path));
}

}  // namespace drafthouse::cli
