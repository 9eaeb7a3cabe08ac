#include "sampling/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "sampling/philox.h"

namespace drafthouse {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of the authors' own library (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  constexpr std::uint32_t kAll = 0xffffffffu;
  EXPECT_EQ(philox({kAll, kAll, kAll, kAll}, {kAll, kAll}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(NaturalLog, IsWithinTwoUnitsInTheLastPlace) {
  std::mt19937_64 random(1);
  std::vector<double> values = {1,      2,    0.5, 0x1p-53, 1 - 0x1p-53, 0x1.6a09e667f3bcdp-1,
                                1e-300, 1e300};
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::ldexp(static_cast<double>(random() >> 12) + 0.5, -52));
    values.push_back(std::exp(static_cast<double>(random() % 1000) / 7 - 70));
  }
  for (const double x : values) {
    const double truth = std::log(x);
    EXPECT_NEAR(natural_log(x), truth, std::fabs(truth) * 4.5e-16) << x;
  }
  EXPECT_EQ(natural_log(1), 0);
}

TEST(Noise, EveryPartOfTheKeyMakesAnotherNumber) {
  std::set<double> numbers;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
    for (const std::uint32_t choice : {0u, 1u}) {
      const Noise noise(seed, choice);
      for (const std::uint32_t position : {0u, 1u, 70000u}) {
        for (const Purpose purpose : {Purpose::group, Purpose::id, Purpose::xtc}) {
          for (const std::uint32_t index : {0u, 1u, 2u, 151000u}) {
            numbers.insert(noise.uniform(position, purpose, index));
          }
        }
      }
    }
  }
  EXPECT_EQ(numbers.size(), 3u * 2 * 3 * 3 * 4);
  // Pinned: a text of a seed stays what it is.
  EXPECT_EQ(Noise(42, 0).uniform(7, Purpose::id, 11), Noise(42, 0).uniform(7, Purpose::id, 11));
}

TEST(Noise, IsUniform) {
  const Noise noise(3, 0);
  constexpr std::uint32_t kCount = 200000;
  constexpr std::uint32_t kBins = 64;
  std::vector<double> bins(kBins);
  double sum = 0;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const double u = noise.uniform(i / 100, Purpose::id, i % 100);
    ASSERT_GT(u, 0);
    ASSERT_LT(u, 1);
    ++bins[static_cast<std::size_t>(u * kBins)];
    sum += noise.exponential(i / 100, Purpose::group, i % 100);
  }
  double chi = 0;
  for (const double bin : bins)
    chi += (bin - kCount / kBins) * (bin - kCount / kBins) * kBins / kCount;
  EXPECT_LT(chi, 104);  // p = 0.001 of 63 degrees of freedom
  EXPECT_NEAR(sum / kCount, 1, 0.01);
}

}  // namespace
}  // namespace drafthouse
