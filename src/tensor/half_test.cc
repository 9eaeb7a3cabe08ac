#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace drafthouse {
namespace {

TEST(Half, EveryStoredValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(stored);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      EXPECT_EQ(float_to_half(value), stored) << bits;
    }
    const float wide = bf16_to_float(stored);
    if (!std::isnan(wide)) {
      EXPECT_EQ(float_to_bf16(wide), stored) << bits;
    }
  }
}

TEST(Half, TiesGoToEven) {
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_half(1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(0x3p-25f), 2);
  EXPECT_EQ(float_to_half(65519.9f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
}

}  // namespace
}  // namespace drafthouse
