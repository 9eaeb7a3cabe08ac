#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace drafthouse {
namespace {

// The float nearest to a double that is within 1e-12 of the truth.
void expect_rounded(float actual, long double truth) {
  EXPECT_LE(std::fabs(static_cast<long double>(actual) - truth),
            std::fabs(truth) * 0x1p-24L * 1.0001L + 1e-12L);
}

TEST(RopeAngles, MatchLongDoubleUpToAMillion) {
  std::mt19937 random(7);
  std::uniform_int_distribution<std::uint32_t> positions(0, 1'000'000);
  std::uniform_real_distribution<double> exponents(-6.0, 0.0);
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t position =
        round < 100 ? static_cast<std::uint32_t>(round) : positions(random);
    std::vector<double> inv_freq(16);
    for (double& f : inv_freq) f = std::pow(10.0, exponents(random));
    inv_freq[0] = 1.0;
    std::vector<float> cos(16), sin(16);
    rope_angles(position, inv_freq.data(), 16, cos.data(), sin.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const double angle = static_cast<double>(position) * inv_freq[i];
      expect_rounded(cos[i], cosl(static_cast<long double>(angle)));
      expect_rounded(sin[i], sinl(static_cast<long double>(angle)));
    }
  }
}

TEST(RopeAngles, PositionZeroIsTheIdentity) {
  const double inv_freq[3] = {1.0, 0.5, 1e-4};
  float cos[3], sin[3];
  rope_angles(0, inv_freq, 3, cos, sin);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cos[i], 1.0f);
    EXPECT_EQ(sin[i], 0.0f);
  }
}

TEST(RopeAngles, NearMultiplesOfAQuarterTurn) {
  // Doubles near n · π/2, where the reduction loses the most.
  for (std::uint32_t n = 1; n <= 600'000; n = n * 3 + 1) {
    const double inv_freq[1] = {1.57079632679489661923};
    float cos[1], sin[1];
    rope_angles(n, inv_freq, 1, cos, sin);
    const long double angle = static_cast<long double>(static_cast<double>(n) * inv_freq[0]);
    expect_rounded(cos[0], cosl(angle));
    expect_rounded(sin[0], sinl(angle));
  }
}

TEST(RopeAngles, NegativeFrequenciesTurnTheOtherWay) {
  const double forward[1] = {0.37};
  const double backward[1] = {-0.37};
  for (std::uint32_t position : {1u, 5u, 1000u}) {
    float cos[2], sin[2];
    rope_angles(position, forward, 1, cos, sin);
    rope_angles(position, backward, 1, cos + 1, sin + 1);
    EXPECT_EQ(cos[0], cos[1]);
    EXPECT_EQ(sin[0], -sin[1]);
  }
}

}  // namespace
}  // namespace drafthouse
