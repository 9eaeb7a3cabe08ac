#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_values.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

using test::normal;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kWidths[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 100, 576, 1537};

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 float relative) {
  test::expect_near(actual, expected, relative, 1e-37f);
}

class Elementwise : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
    kernels_ = &kernels_for(GetParam());
  }
  const Kernels* kernels_ = nullptr;
  const Kernels& reference_ = reference_kernels();
};

TEST_P(Elementwise, RmsNorm) {
  for (const std::uint32_t width : kWidths) {
    const auto in = normal(width, width, 3.0f);
    const auto gain = normal(width, width + 1);
    std::vector<float> out(width), expected(width);
    kernels_->rms_norm(out.data(), in.data(), gain.data(), width, 1e-5f);
    reference_.rms_norm(expected.data(), in.data(), gain.data(), width, 1e-5f);
    expect_near(out, expected, 1e-6f);

    auto in_place = in;
    kernels_->rms_norm(in_place.data(), in_place.data(), gain.data(), width, 1e-5f);
    EXPECT_EQ(in_place, out);
  }
}

TEST_P(Elementwise, SiluMul) {
  for (const std::uint32_t width : kWidths) {
    const auto gate = normal(width, width, 10.0f);
    const auto up = normal(width, width + 1);
    std::vector<float> out(width), expected(width);
    kernels_->silu_mul(out.data(), gate.data(), up.data(), width);
    reference_.silu_mul(expected.data(), gate.data(), up.data(), width);
    expect_near(out, expected, 5e-7f);

    auto padded_gate = gate;
    auto padded_up = up;
    padded_gate.resize(width + 40, 5.0f);
    padded_up.resize(width + 40, 5.0f);
    std::vector<float> padded(width + 40);
    kernels_->silu_mul(padded.data(), padded_gate.data(), padded_up.data(), width + 40);
    padded.resize(width);
    EXPECT_EQ(padded, out);
  }
}

TEST_P(Elementwise, SiluMulAtTheEnds) {
  const std::vector<float> gate = {0.0f, 1000.0f, -1000.0f, 88.0f, -88.0f, kNan, 1e-30f};
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  const auto width = static_cast<std::uint32_t>(gate.size());
  kernels_->silu_mul(out.data(), gate.data(), up.data(), width);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 1000.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 88.0f);
  EXPECT_LT(std::fabs(out[4]), 1e-35f);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_EQ(out[6], 0.5e-30f);
}

TEST_P(Elementwise, GeluMul) {
  for (const std::uint32_t width : kWidths) {
    const auto gate = normal(width, width, 3.0f);
    const auto up = normal(width, width + 1);
    std::vector<float> out(width), expected(width);
    kernels_->gelu_mul(out.data(), gate.data(), up.data(), width);
    reference_.gelu_mul(expected.data(), gate.data(), up.data(), width);
    // Far below zero the exponent is up to 100, and rounded to 24 bits twice.
    expect_near(out, expected, 1.5e-5f);
  }
  const std::vector<float> gate = {0.0f, 1000.0f, -1000.0f, kNan};
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  kernels_->gelu_mul(out.data(), gate.data(), up.data(), 4);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 1000.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_TRUE(std::isnan(out[3]));
}

TEST_P(Elementwise, ClampedSiluMul) {
  for (const std::uint32_t width : kWidths) {
    const auto gate = normal(width, width, 8.0f);
    const auto up = normal(width, width + 1, 8.0f);
    std::vector<float> out(width), expected(width);
    kernels_->clamped_silu_mul(out.data(), gate.data(), up.data(), width, 1.702f, 7.0f);
    reference_.clamped_silu_mul(expected.data(), gate.data(), up.data(), width, 1.702f, 7.0f);
    for (std::uint32_t i = 0; i < width; ++i) {
      EXPECT_NEAR(out[i], expected[i], std::fabs(expected[i]) * 5e-6f + 1e-6f) << "at " << i;
    }
  }
}

TEST_P(Elementwise, Softcap) {
  for (const std::uint32_t width : kWidths) {
    auto values = normal(width, width, 40.0f);
    auto expected = values;
    kernels_->softcap(values.data(), width, 30.0f);
    reference_.softcap(expected.data(), width, 30.0f);
    for (std::uint32_t i = 0; i < width; ++i) EXPECT_NEAR(values[i], expected[i], 1e-5f) << i;
  }
  std::vector<float> ends = {0.0f, 1e6f, -1e6f, kNan};
  kernels_->softcap(ends.data(), 4, 30.0f);
  EXPECT_EQ(ends[0], 0.0f);
  EXPECT_EQ(ends[1], 30.0f);
  EXPECT_EQ(ends[2], -30.0f);
  EXPECT_TRUE(std::isnan(ends[3]));
}

TEST_P(Elementwise, Softmax) {
  for (const std::uint32_t width : kWidths) {
    auto values = normal(width, width, 5.0f);
    auto expected = values;
    kernels_->softmax(values.data(), width);
    reference_.softmax(expected.data(), width);
    for (std::uint32_t i = 0; i < width; ++i) {
      EXPECT_NEAR(values[i], expected[i], expected[i] * 2e-6f + 1e-30f) << "at " << i;
    }
  }
}

TEST_P(Elementwise, RopeIsTheReference) {
  for (const std::uint32_t half : {1u, 8u, 16u, 24u, 40u, 48u, 64u, 128u}) {
    auto head = normal(half * 2, half);
    auto expected = head;
    const auto cos = normal(half, half + 1);
    const auto sin = normal(half, half + 2);
    kernels_->rope(head.data(), cos.data(), sin.data(), half);
    reference_.rope(expected.data(), cos.data(), sin.data(), half);
    EXPECT_EQ(head, expected);
  }
}

TEST_P(Elementwise, ToBf16IsTheReference) {
  std::vector<float> in = {0.0f, -0.0f, 1e-40f,  -1e-45f,     kInfinity,  -kInfinity,
                           kNan, -kNan, 3.4e38f, 1.00390625f, 1.01171875f};
  const auto more = normal(1000, 3, 100.0f);
  in.insert(in.end(), more.begin(), more.end());
  for (std::uint32_t count : {1u, 7u, 11u, 16u, 40u, 1011u}) {
    std::vector<std::uint16_t> out(count + 1, 0x1234), expected(count + 1, 0x1234);
    kernels_->to_bf16(out.data(), in.data(), count);
    reference_.to_bf16(expected.data(), in.data(), count);
    EXPECT_EQ(out, expected);
  }
}

TEST_P(Elementwise, WriteKvIsTheReferenceAndTouchesItsSlotOnly) {
  for (const KvKind kind : {KvKind::bf16, KvKind::f32}) {
    for (const std::uint32_t head_dim : {16u, 32u, 64u, 80u, 96u, 128u, 256u}) {
      const std::size_t bytes = kv_bytes(kind) * head_dim * kPagePositions;
      std::vector<std::byte> k_page(bytes, std::byte{0xa5}), v_page(k_page);
      auto k_expected = k_page;
      auto v_expected = v_page;
      for (const std::uint32_t slot : {0u, 1u, 17u, 62u, 63u}) {
        const auto k = normal(head_dim, slot);
        const auto v = normal(head_dim, slot + 100);
        kernels_->write_kv(kind, head_dim, slot, k.data(), v.data(), k_page.data(), v_page.data());
        reference_.write_kv(kind, head_dim, slot, k.data(), v.data(), k_expected.data(),
                            v_expected.data());
        ASSERT_EQ(k_page, k_expected);
        ASSERT_EQ(v_page, v_expected);
      }
    }
  }
}

TEST_P(Elementwise, MergeSpans) {
  for (const std::uint32_t head_dim : {16u, 80u, 128u}) {
    for (const float m2 : {-3.0f, 2.0f, 200.0f, -200.0f}) {
      float m = 1.0f, l = 7.0f;
      float m_expected = m, l_expected = l;
      auto acc = normal(head_dim, 1);
      auto expected = acc;
      const auto acc2 = normal(head_dim, 2);
      kernels_->merge_spans(&m, &l, acc.data(), m2, 3.0f, acc2.data(), head_dim);
      reference_.merge_spans(&m_expected, &l_expected, expected.data(), m2, 3.0f, acc2.data(),
                             head_dim);
      EXPECT_EQ(m, m_expected);
      EXPECT_NEAR(l, l_expected, 1e-6f * l_expected);
      for (std::uint32_t i = 0; i < head_dim; ++i) EXPECT_NEAR(acc[i], expected[i], 3e-6f);
    }
  }
}

TEST_P(Elementwise, MergeSpansWithEmptySides) {
  const auto some = normal(64, 1);
  const std::vector<float> none(64, 0.0f);

  float m = 1.0f, l = 7.0f;
  auto acc = some;
  kernels_->merge_spans(&m, &l, acc.data(), -kInfinity, 0.0f, none.data(), 64);
  EXPECT_EQ(m, 1.0f);
  EXPECT_EQ(l, 7.0f);
  EXPECT_EQ(acc, some);

  m = -kInfinity;
  l = 0.0f;
  acc = none;
  kernels_->merge_spans(&m, &l, acc.data(), 2.5f, 3.0f, some.data(), 64);
  EXPECT_EQ(m, 2.5f);
  EXPECT_EQ(l, 3.0f);
  EXPECT_EQ(acc, some);

  m = -kInfinity;
  l = 0.0f;
  acc = none;
  kernels_->merge_spans(&m, &l, acc.data(), -kInfinity, 0.0f, none.data(), 64);
  EXPECT_EQ(m, -kInfinity);
  EXPECT_EQ(l, 0.0f);
  EXPECT_EQ(acc, none);
}

TEST_P(Elementwise, ArgmaxTakesTheLowestIndexAmongEquals) {
  std::mt19937 random(5);
  for (const std::uint32_t count : kWidths) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> values(count);
      for (float& value : values) {
        const auto draw = random() % 8;
        value = draw == 0 ? kNan : draw == 1 ? -kInfinity : static_cast<float>(random() % 4);
      }
      EXPECT_EQ(kernels_->argmax(values.data(), count), reference_.argmax(values.data(), count));
    }
  }
}

TEST_P(Elementwise, ArgmaxOfOddInputs) {
  const float zeros[] = {-1.0f, -0.0f, 0.0f};
  EXPECT_EQ(kernels_->argmax(zeros, 3), 1u);
  const float nans[] = {kNan, kNan, kNan};
  EXPECT_EQ(kernels_->argmax(nans, 3), 0u);
  const float lowest[] = {kNan, -kInfinity, -kInfinity};
  EXPECT_EQ(kernels_->argmax(lowest, 3), 1u);
  const float infinite[] = {kNan, 3.0f, kInfinity, kInfinity};
  EXPECT_EQ(kernels_->argmax(infinite, 4), 2u);
}

TEST_P(Elementwise, LogSumExp) {
  for (const std::uint32_t count : kWidths) {
    const auto values = normal(count, count, 8.0f);
    EXPECT_NEAR(kernels_->log_sum_exp(values.data(), count),
                reference_.log_sum_exp(values.data(), count), 3e-7);
  }
  const float one[] = {-123.5f};
  EXPECT_EQ(kernels_->log_sum_exp(one, 1), -123.5);
  const float lowest[] = {-kInfinity, -kInfinity};
  EXPECT_EQ(kernels_->log_sum_exp(lowest, 2), -std::numeric_limits<double>::infinity());
  const float infinite[] = {0.0f, kInfinity};
  EXPECT_EQ(kernels_->log_sum_exp(infinite, 2), std::numeric_limits<double>::infinity());
  const float nan[] = {0.0f, kNan};
  EXPECT_TRUE(std::isnan(kernels_->log_sum_exp(nan, 2)));
}

TEST_P(Elementwise, LogitGroups) {
  for (const std::uint32_t count : kWidths) {
    auto values = normal(count, count, 5.0f);
    if (count > 2) values[count / 2] = -kInfinity;
    const std::uint32_t groups = (count + kLogitGroup - 1) / kLogitGroup;
    std::vector<float> out(groups), expected(groups);
    kernels_->group_weights(values.data(), count, 4.0f, 0.7f, out.data());
    reference_.group_weights(values.data(), count, 4.0f, 0.7f, expected.data());
    expect_near(out, expected, 2e-6f);
    std::vector<float> each(count), expected_each(count);
    kernels_->weights(values.data(), count, 4.0f, 0.7f, each.data());
    reference_.weights(values.data(), count, 4.0f, 0.7f, expected_each.data());
    expect_near(each, expected_each, 1e-6f);
    if (count > 2) {
      EXPECT_EQ(each[count / 2], 0.0f);
    }
    if (count > 2) values[0] = kNan;
    kernels_->group_maxima(values.data(), count, out.data());
    reference_.group_maxima(values.data(), count, expected.data());
    EXPECT_EQ(out, expected);
  }
}

// All of these are written with the same vectors, so every set gives the bits of the first.
TEST_P(Elementwise, BitsAreThoseOfGeneric) {
  const Kernels& generic = kernels_for(Isa::generic);
  for (const std::uint32_t width : kWidths) {
    const auto in = normal(width, width, 20.0f);
    const auto other = normal(width, width + 1);
    std::vector<float> out(width), expected(width);
    kernels_->rms_norm(out.data(), in.data(), other.data(), width, 1e-6f);
    generic.rms_norm(expected.data(), in.data(), other.data(), width, 1e-6f);
    EXPECT_EQ(out, expected);
    kernels_->silu_mul(out.data(), in.data(), other.data(), width);
    generic.silu_mul(expected.data(), in.data(), other.data(), width);
    EXPECT_EQ(out, expected);
    EXPECT_EQ(kernels_->log_sum_exp(in.data(), width), generic.log_sum_exp(in.data(), width));
    kernels_->weights(in.data(), width, 3.0f, 0.6f, out.data());
    generic.weights(in.data(), width, 3.0f, 0.6f, expected.data());
    EXPECT_EQ(out, expected);
    kernels_->group_weights(in.data(), width, 3.0f, 0.6f, out.data());
    generic.group_weights(in.data(), width, 3.0f, 0.6f, expected.data());
    EXPECT_EQ(out, expected);
  }
}

// exp(x) is seen through merge_spans with m2 = 0: acc becomes exp(m) · acc.
TEST_P(Elementwise, ExpIsWithinItsBound) {
  const Kernels& generic = kernels_for(Isa::generic);
  const std::vector<float> zeros(16, 0.0f);
  for (float x = -110.0f; x <= 0.0f; x += 0.0037f) {
    std::vector<float> acc(16, 1.0f), same(16, 1.0f);
    float m = x, l = 1.0f;
    kernels_->merge_spans(&m, &l, acc.data(), 0.0f, 1.0f, zeros.data(), 16);
    m = x;
    l = 1.0f;
    generic.merge_spans(&m, &l, same.data(), 0.0f, 1.0f, zeros.data(), 16);
    const double truth = std::exp(static_cast<double>(x));
    ASSERT_NEAR(acc[3], truth, truth * 1.2e-7 + 1e-45) << x;
    ASSERT_EQ(bits_of(acc[3]), bits_of(same[3])) << x;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Elementwise,
                         testing::ValuesIn(built_isas().begin(), built_isas().end()),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

}  // namespace
}  // namespace drafthouse
