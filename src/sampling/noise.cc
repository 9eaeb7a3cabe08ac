#include "sampling/noise.h"

#include <bit>
#include <cmath>

#include "sampling/philox.h"

namespace drafthouse {

double natural_log(double x) {
  // x = m · 2^e with m in [√½, √2); ln m = 2 artanh s, s = (m − 1) / (m + 1), |s| < 0.1716.
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  // Σ z^k / (2k + 1); the first term left out is z^12 / 25 < 2^-65.
  double sum = 1.0 / 23;
  for (int k = 10; k >= 1; --k) sum = std::fma(sum, z, 1.0 / (2 * k + 1));
  const double tail = 2 * s * z * sum;
  constexpr double kLn2High = 0x1.62e42fefa3800p-1;
  constexpr double kLn2Low = 0x1.ef35793c76730p-45;
  const double e = exponent;
  return std::fma(e, kLn2High, 2 * s) + std::fma(e, kLn2Low, tail);
}

double Noise::uniform(std::uint32_t position, Purpose purpose, std::uint32_t index) const {
  // Two neighbouring indices share a block of 128 bits.
  const auto bits =
      philox({index / 2, position, choice_, static_cast<std::uint32_t>(purpose)},
             {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  const std::size_t half = index % 2 * 2;
  const std::uint64_t word = std::uint64_t{bits[half + 1]} << 32 | bits[half];
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

}  // namespace drafthouse
