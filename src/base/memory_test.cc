#include "base/memory.h"

#include <gtest/gtest.h>

#include <utility>

namespace drafthouse {
namespace {

TEST(Buffer, IsZeroAlignedAndCounted) {
  MemoryLedger ledger;
  {
    Buffer small = Buffer::allocate(100, MemoryTag::taps, ledger).value();
    Buffer large = Buffer::allocate(5'000'000, MemoryTag::weights, ledger).value();
    EXPECT_EQ(ledger.bytes(MemoryTag::taps), 100u);
    EXPECT_EQ(ledger.total(), 5'000'100u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(small.data()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large.data()) % (2u << 20), 0u);
    for (std::size_t i = 0; i < large.size(); i += 4093) EXPECT_EQ(large.data()[i], std::byte{0});
    Buffer moved = std::move(large);
    EXPECT_EQ(large.data(), nullptr);
    moved.data()[4'999'999] = std::byte{1};
    small = std::move(moved);
    EXPECT_EQ(ledger.bytes(MemoryTag::taps), 0u);
  }
  EXPECT_EQ(ledger.total(), 0u);
}

TEST(Buffer, AnAbsurdSizeIsAnError) {
  MemoryLedger ledger;
  const Result<Buffer> result =
      Buffer::allocate(~std::size_t{0} - 4096, MemoryTag::weights, ledger);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::no_memory);
  EXPECT_EQ(ledger.total(), 0u);
}

}  // namespace
}  // namespace drafthouse
