#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace drafthouse {

// Digest of all that makes stored state valid: weights, shapes, rope, layout, numerics, format version.
struct StateDigest {
  std::array<std::uint8_t, 32> bytes{};

  // 64 lower-case hexadecimal digits.
  std::string hex() const;
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

}  // namespace drafthouse
