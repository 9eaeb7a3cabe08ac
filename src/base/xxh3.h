#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace drafthouse {

// XXH3, 64 bits: finds damage, not intent.
std::uint64_t xxh3(std::span<const std::byte> bytes);

}  // namespace drafthouse
