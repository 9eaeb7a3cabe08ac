#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "device/cpu_device.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kWidth = 64;
constexpr std::uint32_t kRows = 512;  // enough for the pool
constexpr float kUntouched = -7.0f;

class PassWatchTest : public ::testing::TestWithParam<unsigned> {
 protected:
  PassWatchTest() : pool_(GetParam()), in_(kRows * kWidth, 1.0f), gain_(kWidth, 1.0f) {
    device_ = CpuDevice::create(pool_, best_isa(),
                                {.activation_bytes = act_bytes(ActKind::f32, kRows, kWidth),
                                 .heads_max = 1,
                                 .head_dim_max = 16,
                                 .positions_max = 64},
                                ledger_)
                  .value();
    // 64 × 64 packed floats, all of one value.
    const PackedMatrix shape{Dtype::f32, kWidth, kWidth, nullptr};
    packed_ = Buffer::allocate(shape.bytes(), MemoryTag::weights, ledger_).value();
    std::fill_n(packed_.as<float>(), kWidth * kWidth, 1.0f);
  }

  static std::size_t untouched(const std::vector<float>& out) {
    return static_cast<std::size_t>(std::count(out.begin(), out.end(), kUntouched));
  }
  std::vector<float> multiplied() {
    std::vector<float> out(kRows * kWidth, kUntouched);
    const LinearSegment segments[] = {{{Dtype::f32, kWidth, kWidth, packed_.data()}, 0}};
    device_->linear(segments, true, in_.data(), kWidth, kRows, out.data(), kWidth, false);
    return out;
  }
  std::vector<float> normed() {
    std::vector<float> out(kRows * kWidth, kUntouched);
    device_->rms_norm(in_.data(), kWidth, kRows, kWidth, {gain_.data(), 1e-6f}, out.data(), kWidth);
    return out;
  }

  ThreadPool pool_;
  MemoryLedger ledger_;
  std::unique_ptr<CpuDevice> device_;
  Buffer packed_;
  std::vector<float> in_;
  std::vector<float> gain_;
};

TEST_P(PassWatchTest, WhatHasNotBegunIsLeftOutAndRemembered) {
  const std::vector<float> product = multiplied();
  const std::vector<float> norm = normed();
  EXPECT_EQ(untouched(product), 0u);
  EXPECT_EQ(untouched(norm), 0u);
  std::atomic<bool> flag{false};
  {
    const PassWatch watch(*device_, &flag);
    EXPECT_EQ(multiplied(), product);
    EXPECT_FALSE(watch.cancelled());
    flag = true;
    EXPECT_TRUE(watch.cancelled());
    const std::vector<float> out = multiplied();
    EXPECT_EQ(untouched(out), out.size());
    // Somebody may clear the flag while the pass still runs.
    flag = false;
    EXPECT_TRUE(device_->given_up());
    EXPECT_TRUE(watch.cancelled());
    const std::vector<float> rows = normed();
    EXPECT_EQ(untouched(rows), rows.size());
  }
  EXPECT_FALSE(device_->given_up());
  flag = true;
  EXPECT_EQ(multiplied(), product);
  EXPECT_EQ(normed(), norm);
}

INSTANTIATE_TEST_SUITE_P(Threads, PassWatchTest, ::testing::Values(1u, 3u));

}  // namespace
}  // namespace drafthouse
