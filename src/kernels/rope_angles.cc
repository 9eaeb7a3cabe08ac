#include <cmath>

#include "kernels/kernels.h"

namespace drafthouse {
namespace {

// π/2 as a sum of two doubles; what is left is below 1e-33.
constexpr double kHalfPi = 0x1.921fb54442d18p0;
constexpr double kHalfPiRest = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// Adding and subtracting it rounds to an integer, ties to even.
constexpr double kRound = 0x1.8p52;

struct SinCos {
  double sin;
  double cos;
};

// Taylor series; on |r| <= π/4 the first term left out is below 5e-17.
double sin_series(double r) {
  const double z = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  return r + r * (z * s);
}

double cos_series(double r) {
  const double z = r * r;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  return 1.0 + z * c;
}

SinCos sin_cos(double x) {
  const double turns = x * kTwoOverPi + kRound;
  const double n = turns - kRound;
  // x and n · kHalfPi are multiples of one power of two close to each other, so the first step is
  // exact and the second carries the only rounding.
  const double r = std::fma(-n, kHalfPiRest, std::fma(-n, kHalfPi, x));
  const double s = sin_series(r);
  const double c = cos_series(r);
  switch (static_cast<long long>(n) & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

}  // namespace

void rope_angles(std::uint32_t position, const double* inv_freq, std::uint32_t half, float* cos,
                 float* sin) {
  for (std::uint32_t i = 0; i < half; ++i) {
    const SinCos turned = sin_cos(static_cast<double>(position) * inv_freq[i]);
    cos[i] = static_cast<float>(turned.cos);
    sin[i] = static_cast<float>(turned.sin);
  }
}

}  // namespace drafthouse
