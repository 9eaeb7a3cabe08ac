#include "cache/sequence_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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

TEST(SequenceCache, AWindowedGroupKeepsWhatARowSeesThatCanStillCome) {
  const auto pool = PagePool::create(64, MemoryTag::draft_pages, std::make_shared<MemoryLedger>());
  std::mt19937 random(7);
  for (const std::uint32_t reach : {1u, 5u, 64u, 65u, 200u}) {
    SequenceCache cache({{pool, reach}});
    while (cache.length() < 1500) {
      const auto count = static_cast<std::uint32_t>(1 + random() % 300);
      const std::uint32_t before = cache.length();
      ASSERT_TRUE(cache.extend(count).ok());
      cache.commit(static_cast<std::uint32_t>(random() % (count + 1)));
      if (cache.length() == 0) continue;
      for (std::uint32_t page = 0; page < cache.length() / kPageTokens; ++page) {
        // What the last rows wrote is still there, to be shared.
        EXPECT_TRUE((page + 1) * kPageTokens <= before || cache.pages(0)[page] != nullptr);
      }
      ASSERT_TRUE(cache.extend(0).ok());
      const std::uint32_t next = cache.length();
      const std::uint32_t row = next - std::min(next, SequenceCache::kRollbackMax);
      const std::uint32_t oldest_seen = row + 1 > reach ? row + 1 - reach : 0;
      for (std::uint32_t page = 0; page <= (next - 1) / kPageTokens; ++page) {
        const bool seen = (page + 1) * kPageTokens > oldest_seen;
        EXPECT_EQ(cache.pages(0)[page] != nullptr, seen) << "page " << page << " at " << next;
      }
    }
  }
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(SequenceCache, ASinkStaysBesideTheWindow) {
  const auto pool = PagePool::create(64, MemoryTag::draft_pages, std::make_shared<MemoryLedger>());
  SequenceCache cache({{pool, 200, GroupKind::attention, 100}});
  while (cache.length() < 1500) {
    ASSERT_TRUE(cache.extend(70).ok());
    cache.commit(70);
  }
  ASSERT_TRUE(cache.extend(0).ok());
  const std::uint32_t seen = first_page_seen(cache.length() - SequenceCache::kRollbackMax, 200);
  for (std::uint32_t page = 0; page < cache.length() / kPageTokens; ++page) {
    EXPECT_EQ(cache.pages(0)[page] != nullptr, page < 2 || page >= seen) << page;
  }
  const std::uint32_t begun = (cache.length() + kPageTokens - 1) / kPageTokens;
  EXPECT_EQ(pool->pages_in_use(), 2 + begun - seen);
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

// A cache over one group whose every position is a byte; tells what its pages hold.
class Bytes {
 public:
  explicit Bytes(std::shared_ptr<PagePool> pool, std::uint32_t reach = 0)
      : cache({{std::move(pool), reach}}) {}
  explicit Bytes(SequenceCache from) : cache(std::move(from)) {}

  void write(std::uint32_t count, std::uint8_t value) {
    ASSERT_TRUE(cache.extend(count).ok());
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t at = cache.length() + i;
      cache.pages(0)[at / kPageTokens][at % kPageTokens] = std::byte{value};
    }
    cache.commit(count);
  }
  std::vector<int> read() const {
    std::vector<int> values;
    for (std::uint32_t at = 0; at < cache.length(); ++at) {
      const std::byte* page = cache.pages(0)[at / kPageTokens];
      values.push_back(page == nullptr ? -1 : static_cast<int>(page[at % kPageTokens]));
    }
    return values;
  }
  std::vector<PageRef> pages(std::uint32_t count) const {
    std::vector<PageRef> shared;
    for (std::uint32_t page = 0; page < count; ++page) shared.push_back(cache.share(0, page));
    return shared;
  }

  SequenceCache cache;
};

std::vector<int> filled(std::initializer_list<std::pair<int, int>> runs) {
  std::vector<int> values;
  for (const auto& [count, value] : runs) {
    values.insert(values.end(), static_cast<std::size_t>(count), value);
  }
  return values;
}

std::shared_ptr<PagePool> byte_pool() {
  return PagePool::create(kPageTokens, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
}

TEST(SequenceCache, AdoptedPagesAreSharedUntilTheyWouldBeWritten) {
  const auto pool = byte_pool();
  Bytes first(pool);
  first.write(150, 1);
  Bytes second(pool);
  const std::vector<std::vector<PageRef>> shared = {first.pages(2)};
  second.cache.adopt(128, shared);
  EXPECT_EQ(pool->pages_in_use(), 3u);
  EXPECT_EQ(second.cache.pages(0)[1], first.cache.pages(0)[1]);
  second.write(10, 2);
  EXPECT_EQ(pool->pages_in_use(), 4u);
  second.cache.truncate(100);
  second.write(8, 3);
  EXPECT_EQ(second.read(), filled({{100, 1}, {8, 3}}));
  EXPECT_EQ(first.read(), filled({{150, 1}}));
  EXPECT_NE(second.cache.pages(0)[1], first.cache.pages(0)[1]);
  EXPECT_EQ(second.cache.pages(0)[0], first.cache.pages(0)[0]);
}

TEST(SequenceCache, TruncatingIntoAPublishedPageLeavesThePublishedBytes) {
  const auto pool = byte_pool();
  Bytes sequence(pool);
  sequence.write(64, 1);
  const PageRef published = sequence.cache.share(0, 0);
  sequence.cache.truncate(63);
  sequence.write(2, 2);
  EXPECT_EQ(sequence.read(), filled({{63, 1}, {2, 2}}));
  EXPECT_EQ(published.data()[63], std::byte{1});
}

TEST(SequenceCache, AForkSharesAllPagesAndThenGoesItsOwnWay) {
  const auto pool = byte_pool();
  Bytes first(pool);
  first.write(70, 1);
  Bytes second(first.cache.fork());
  EXPECT_EQ(pool->pages_in_use(), 2u);
  first.write(60, 2);
  second.write(3, 3);
  EXPECT_EQ(first.read(), filled({{70, 1}, {60, 2}}));
  EXPECT_EQ(second.read(), filled({{70, 1}, {3, 3}}));
  EXPECT_EQ(pool->pages_in_use(), 3u + 1u) << "the first page is still shared";
}

TEST(SequenceCache, AFullBudgetAtACopyChangesNothing) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  MemoryBudget budget(kPage);
  const auto pool =
      PagePool::create(kPage, MemoryTag::kv_pages, std::make_shared<MemoryLedger>(&budget));
  SequenceCache first({{pool, 0}});
  ASSERT_TRUE(first.extend(10).ok());
  first.commit(10);
  {
    SequenceCache second = first.fork();
    EXPECT_EQ(second.extend(1).code(), Code::no_memory);
    EXPECT_EQ(second.pending(), 0u);
    EXPECT_EQ(second.pages(0)[0], first.pages(0)[0]);
  }
  EXPECT_TRUE(first.extend(1).ok()) << "the only owner needs no copy";
}

TEST(SequenceCache, MissingPagesAreNullAndNeverShared) {
  const auto pool = byte_pool();
  Bytes sequence(pool);
  const std::vector<std::vector<PageRef>> missing = {std::vector<PageRef>(2)};
  sequence.cache.adopt(128, missing);
  EXPECT_EQ(pool->pages_in_use(), 0u);
  sequence.write(70, 1);
  EXPECT_EQ(sequence.read(), filled({{128, -1}, {70, 1}}));
  EXPECT_FALSE(sequence.cache.share(0, 1));
  EXPECT_TRUE(sequence.cache.share(0, 2));
  // A page that holds only its end is this sequence's own business.
  sequence.cache.truncate(100);
  sequence.write(60, 2);
  EXPECT_EQ(sequence.read(), filled({{64, -1}, {36, 0}, {60, 2}}));
  EXPECT_FALSE(sequence.cache.share(0, 1));
  sequence.cache.truncate(64);
  sequence.write(64, 3);
  EXPECT_TRUE(sequence.cache.share(0, 1));
}

}  // namespace
}  // namespace drafthouse
