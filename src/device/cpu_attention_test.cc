#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "device/cpu_device.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kDim = 32;
constexpr std::uint32_t kHeads = 16;
constexpr std::uint32_t kKvHeads = 8;

// One layer of fp32 keys and values over `pages` pages, random.
class Fixture {
 public:
  explicit Fixture(std::uint32_t pages, unsigned threads = 2) : threads_(threads), random_(3) {
    kv_ = {
        .kind = KvKind::f32, .group = 0, .layer_offset = 0, .kv_heads = kKvHeads, .head_dim = kDim};
    device_ = CpuDevice::create(threads_, best_isa(),
                                {.activation_bytes = 4096,
                                 .heads_max = kHeads,
                                 .head_dim_max = kDim,
                                 .positions_max = pages * kPagePositions},
                                ledger_)
                  .value();
    for (std::uint32_t p = 0; p < pages; ++p) {
      std::vector<float> page(kv_.layer_bytes() / sizeof(float));
      for (float& value : page) value = uniform_(random_);
      memory_.push_back(std::move(page));
      table_.push_back(reinterpret_cast<std::byte*>(memory_.back().data()));
    }
    q_.resize(kHeads * kDim);
    for (float& value : q_) value = uniform_(random_);
  }

  void lose(std::uint32_t page) { table_[page] = nullptr; }

  // Of one row at `position`.
  std::vector<float> attend(std::uint32_t position, std::uint32_t window, std::uint32_t sink = 0) {
    StepTable step;
    step.rows = 1;
    step.positions = {position};
    step.spans.push_back({0, 1, position, {table_.data()}, nullptr});
    std::vector<float> out(kHeads * kDim);
    device_->attention(step, AttentionJob{.kv = kv_,
                                          .heads = kHeads,
                                          .window = window,
                                          .sink = sink,
                                          .scale = 0.3f,
                                          .q = q_.data(),
                                          .q_stride = kHeads * kDim,
                                          .out = out.data()});
    return out;
  }

 private:
  ThreadPool threads_;
  MemoryLedger ledger_;
  std::unique_ptr<CpuDevice> device_;
  KvLayout kv_;
  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0f, 1.0f};
  std::vector<std::vector<float>> memory_;
  std::vector<std::byte*> table_;
  std::vector<float> q_;
};

// A window that begins on a page hides exactly the pages that are missing here.
TEST(CpuAttention, AMissingBeginningIsNotSeen) {
  for (const std::uint32_t missing : {1u, 3u, 16u, 20u, 39u}) {
    Fixture fixture(40);
    const std::uint32_t position = 40 * kPagePositions - 5;
    const std::vector<float> whole = fixture.attend(position, 0);
    const std::vector<float> want =
        fixture.attend(position, position + 1 - missing * kPagePositions);
    for (std::uint32_t page = 0; page < missing; ++page) fixture.lose(page);
    const std::vector<float> got = fixture.attend(position, 0);
    EXPECT_EQ(got, want) << missing;
    EXPECT_NE(got, whole) << missing;
  }
}

TEST(CpuAttention, ASinkIsSeenBesideTheWindow) {
  const std::uint32_t position = 40 * kPagePositions - 5;
  for (const std::uint32_t sink : {1u, 2u, 17u}) {
    for (const std::uint32_t first : {2u, 20u, 39u}) {
      Fixture fixture(40);
      const std::vector<float> got =
          fixture.attend(position, position + 1 - first * kPagePositions, sink * kPagePositions);
      for (std::uint32_t page = sink; page < first; ++page) fixture.lose(page);
      EXPECT_EQ(got, fixture.attend(position, 0)) << sink << ", " << first;
    }
  }
}

TEST(CpuAttention, NothingButMissingPagesGivesZero) {
  Fixture fixture(3);
  for (std::uint32_t page = 0; page < 3; ++page) fixture.lose(page);
  EXPECT_EQ(fixture.attend(150, 0), std::vector<float>(kHeads * kDim, 0.0f));
}

TEST(CpuAttention, AHoleIsNotSeen) {
  Fixture fixture(3);
  const std::vector<float> before = fixture.attend(150, 0);
  fixture.lose(1);
  const std::vector<float> with_hole = fixture.attend(150, 0);
  EXPECT_NE(with_hole, before);
  for (const float value : with_hole) EXPECT_TRUE(std::isfinite(value));
}

// Threads decide which heads and which positions a task takes.
TEST(CpuAttention, BitsDoNotDependOnThreads) {
  constexpr std::uint32_t kPages = 40;
  Fixture one(kPages, 1);
  for (const unsigned threads : {2u, 4u, 8u}) {
    Fixture many(kPages, threads);
    for (const std::uint32_t position : {70u, 1500u, kPages * kPagePositions - 5}) {
      EXPECT_EQ(one.attend(position, 0), many.attend(position, 0)) << threads << ", " << position;
    }
  }
}

}  // namespace
}  // namespace drafthouse
