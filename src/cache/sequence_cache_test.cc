#include "cache/sequence_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace drafthouse {
namespace {

TEST(SequenceCache, PagesFollowTheLengthAndReturnToTheirPool) {
  const auto pool = PagePool::create(4096, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
  {
    SequenceCache cache({{pool, 0}});
    ASSERT_TRUE(cache.extend(130).ok());
    EXPECT_EQ(pool->pages_in_use(), 3u);
    cache.commit(100);
    EXPECT_EQ(cache.length(), 100u);
    ASSERT_TRUE(cache.extend(16).ok());
    std::byte* const second = cache.pages(0)[1];
    cache.commit(3);
    EXPECT_EQ(cache.length(), 103u);
    EXPECT_EQ(cache.pages(0)[1], second) << "rollback moves no page";
    cache.truncate(64);
    EXPECT_EQ(pool->pages_in_use(), 1u);
    SequenceCache moved(std::move(cache));
    EXPECT_EQ(moved.length(), 64u);
    EXPECT_EQ(pool->pages_in_use(), 1u);
  }
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(SequenceCache, AWindowedGroupKeepsExactlyWhatTheNextRowSees) {
  const auto pool = PagePool::create(64, MemoryTag::draft_pages, std::make_shared<MemoryLedger>());
  std::mt19937 random(7);
  for (const std::uint32_t reach : {1u, 5u, 64u, 65u, 200u}) {
    SequenceCache cache({{pool, reach}});
    while (cache.length() < 1500) {
      const auto count = static_cast<std::uint32_t>(1 + random() % 40);
      ASSERT_TRUE(cache.extend(count).ok());
      cache.commit(static_cast<std::uint32_t>(random() % (count + 1)));
      if (cache.length() == 0) continue;
      const std::uint32_t next = cache.length();
      const std::uint32_t oldest_seen = next + 1 > reach ? next + 1 - reach : 0;
      for (std::uint32_t page = 0; page <= (next - 1) / kPageTokens; ++page) {
        const bool seen = (page + 1) * kPageTokens > oldest_seen;
        EXPECT_EQ(cache.pages(0)[page] != nullptr, seen) << "page " << page << " at " << next;
      }
    }
  }
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(SequenceCache, AFullBudgetIsAnErrorThatChangesNothing) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  MemoryBudget budget(2 * kPage);
  const auto pool =
      PagePool::create(kPage, MemoryTag::kv_pages, std::make_shared<MemoryLedger>(&budget));
  SequenceCache cache({{pool, 0}});
  ASSERT_TRUE(cache.extend(100).ok());
  cache.commit(100);
  EXPECT_EQ(cache.extend(100).code(), Code::no_memory);
  EXPECT_EQ(cache.length(), 100u);
  EXPECT_EQ(cache.pending(), 0u);
  EXPECT_TRUE(cache.extend(28).ok());
}

}  // namespace
}  // namespace drafthouse
