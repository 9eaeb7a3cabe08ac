#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

// Inputs of kernel tests and how their results are compared.

namespace drafthouse::test {

inline std::vector<float> normal(std::size_t count, unsigned seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

// `least`: what may differ where the expected value is 0.
inline void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                        float relative, float least) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], std::fabs(expected[i]) * relative + least) << "at " << i;
  }
}

}  // namespace drafthouse::test
