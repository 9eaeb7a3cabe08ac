#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace CLI {
class Validator;
}

namespace drafthouse::cli {

// "4096", "512M", "20GiB": bytes; the letters K, M, G and T stand for powers of 1024.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

// For ->check(): what parse_bytes() takes.
CLI::Validator bytes_check();

}  // namespace drafthouse::cli
