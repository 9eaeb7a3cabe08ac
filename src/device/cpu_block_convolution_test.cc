#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "device/cpu_device.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kWidth = 24;
constexpr std::uint32_t kGroups = 4;

std::vector<float> some_floats(std::mt19937& random, std::size_t count) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

// Against the formula, out of place; blocks do not see one another.
TEST(BlockConvolution, EqualsItsFormulaInEveryBlock) {
  ThreadPool threads(2);
  MemoryLedger ledger;
  const auto device =
      CpuDevice::create(
          threads, best_isa(),
          {.activation_bytes = 4096, .heads_max = 1, .head_dim_max = 16, .positions_max = 64},
          ledger)
          .value();
  std::mt19937 random(5);
  StepTable step;
  for (const std::uint32_t rows : {8u, 1u, 5u}) {
    step.spans.push_back({.first_row = step.rows, .rows = rows});
    step.rows += rows;
  }
  for (const std::uint32_t kernel : {1u, 2u, 3u}) {
    const std::uint32_t stride = 2 * kernel * kGroups;
    const std::vector<float> base = some_floats(random, kernel * kWidth);
    const std::vector<float> dynamic = some_floats(random, step.rows * stride);
    const std::vector<float> in = some_floats(random, step.rows * kWidth);
    std::vector<float> out = in;
    device->block_convolution(step, {.kernel = kernel,
                                     .groups = kGroups,
                                     .width = kWidth,
                                     .base = base.data(),
                                     .dynamic = dynamic.data() + kernel * kGroups,
                                     .dynamic_stride = stride,
                                     .inout = out.data()});
    for (const StepSpan& span : step.spans) {
      for (std::uint32_t i = 0; i < span.rows * kWidth; ++i) {
        const std::uint32_t row = i / kWidth;
        const std::uint32_t channel = i % kWidth;
        const std::size_t at = span.first_row + row;
        double want = 0;
        for (std::uint32_t t = 0; t < kernel && t <= row; ++t) {
          const std::size_t coefficient =
              at * stride + (kernel + t) * kGroups + channel / (kWidth / kGroups);
          want += (static_cast<double>(base[t * kWidth + channel]) +
                   static_cast<double>(dynamic[coefficient])) *
                  static_cast<double>(in[(at - t) * kWidth + channel]);
        }
        EXPECT_NEAR(out[at * kWidth + channel], want, 1e-5) << kernel << ", " << at;
      }
    }
  }
}

}  // namespace
}  // namespace drafthouse
