#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/disk/names.h"

namespace drafthouse {

// XXH3, 64 bits: finds damage, not intent.
std::uint64_t checksum(std::span<const std::byte> bytes);
inline std::uint64_t checksum(std::span<const std::uint32_t> tokens) {
  return checksum(std::as_bytes(tokens));
}

// SHA-256 over the page before and the tokens of this one.
PageAddress page_address(const PageAddress& before, std::span<const std::uint32_t> tokens);
// The first half of SHA-256.
RunId run_id(std::span<const std::byte> bytes);
// The first half of HMAC-SHA-256: who has no key learns nothing about salts from names.
RootName root_name(std::span<const std::byte> key, std::string_view salt);
// From the system's generator; false when it has none.
bool random_bytes(std::span<std::byte> into);

}  // namespace drafthouse
