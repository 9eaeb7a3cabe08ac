#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace drafthouse {

// Digest of all that makes stored state valid: weights, shapes, rope, layout, numerics, format
// version.
struct StateDigest {
  std::array<std::uint8_t, 32> bytes{};

  // 64 lower-case hexadecimal digits.
  std::string hex() const;
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

// The parts of a digest by name, in their order.
using StateFields = std::vector<std::pair<std::string, std::string>>;

// The first field of `after` that `before` lacks or has otherwise; else the first that only
// `before` has; empty when they are the same.
std::string changed_field(const StateFields& before, const StateFields& after);

}  // namespace drafthouse
