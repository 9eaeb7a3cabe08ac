// States of recurrent layers in a sequence, over a made-up layer whose state is a hash: what a pass
// reads must be what the accepted positions leave, however they were cut into passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "cache/sequence_cache.h"

namespace drafthouse {
namespace {

using Ids = std::vector<std::uint8_t>;

constexpr std::uint64_t kStart = 1469598103934665603u;

std::uint64_t fold(std::uint64_t state, const std::uint8_t* ids, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) state = (state ^ ids[i]) * 1099511628211u;
  return state;
}

struct Pools {
  std::shared_ptr<MemoryLedger> ledger = std::make_shared<MemoryLedger>();
  std::shared_ptr<PagePool> keys = PagePool::create(64, MemoryTag::kv_pages, ledger);
  std::shared_ptr<PagePool> states = PagePool::create(64, MemoryTag::recurrent, ledger);
  std::shared_ptr<PagePool> rings = PagePool::create(kPageTokens, MemoryTag::recurrent, ledger);

  SequenceCache sequence() const {
    return SequenceCache({{keys, 0, GroupKind::attention},
                          {states, kRecurrentReach, GroupKind::recurrent},
                          {rings, kRingReach, GroupKind::ring}});
  }
};

// Does what a pass over the pending positions does, in two layers that go one after another.
// Returns what the rows see: a hash of everything before each of them and itself.
std::vector<std::uint64_t> pass(SequenceCache& cache, const Ids& ids) {
  std::vector<std::uint64_t> seen;
  for (int layer = 0; layer < 2; ++layer) {
    seen.clear();
    for (std::uint32_t i = 0; i < cache.pending(); ++i) {
      const std::uint32_t position = cache.length() + i;
      const std::uint32_t page = position / kPageTokens;
      const std::uint32_t slot = position % kPageTokens;
      std::uint64_t state = kStart;
      if (page > 0) std::memcpy(&state, cache.pages(1)[page - 1] + layer * 8, 8);
      auto* ring = reinterpret_cast<std::uint8_t*>(cache.pages(2)[page]);
      ring[slot] = ids[position];
      const std::uint64_t now = fold(state, ring, slot + 1);
      seen.push_back(now);
      if (slot + 1 == kPageTokens) std::memcpy(cache.pages(1)[page] + layer * 8, &now, 8);
    }
  }
  return seen;
}

void expect_right(const std::vector<std::uint64_t>& seen, const Ids& ids, std::uint32_t first) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    ASSERT_EQ(seen[i], fold(kStart, ids.data(), first + i + 1)) << "position " << first + i;
  }
}

TEST(RecurrentState, IsWhatTheAcceptedPositionsLeave) {
  const Pools pools;
  std::mt19937 random(3);
  const auto below = [&random](std::size_t most) {
    return static_cast<std::uint32_t>(random() % most);
  };
  for (int round = 0; round < 60; ++round) {
    SequenceCache cache = pools.sequence();
    cache.want_checkpoints(round % 3 == 0 ? 2 : 0, {});
    Ids ids;
    while (cache.length() < 900) {
      const bool long_pass = below(4) == 0;
      const std::uint32_t count = 1 + below(long_pass ? 400 : 64);
      const std::uint32_t first = cache.length();
      ids.resize(first);
      for (std::uint32_t i = 0; i < count; ++i) ids.push_back(static_cast<std::uint8_t>(random()));
      ASSERT_TRUE(cache.extend(count).ok());
      expect_right(pass(cache, ids), ids, first);
      if (count > SequenceCache::kRollbackMax) {
        cache.commit(below(3) == 0 ? 0 : count);
        continue;
      }
      cache.commit(below(count + 1));
      // A text may end inside the block.
      const std::uint32_t gained = cache.length() - first;
      if (gained > 1 && below(2) == 0) cache.truncate(first + 1 + below(gained - 1));
      EXPECT_LE(pools.rings->pages_in_use(), 2u);
      if (round % 3 != 0) {
        EXPECT_LE(pools.states->pages_in_use(), 2u);
      }
    }
  }
  EXPECT_EQ(pools.states->pages_in_use(), 0u);
  EXPECT_EQ(pools.rings->pages_in_use(), 0u);
}

TEST(RecurrentState, ALongPassTakesThreeBuffersWhateverItsLength) {
  const Pools pools;
  SequenceCache cache = pools.sequence();
  const Ids ids(2000, 7);
  ASSERT_TRUE(cache.extend(100).ok());
  expect_right(pass(cache, ids), ids, 0);
  cache.commit(100);
  ASSERT_TRUE(cache.extend(1500).ok());
  EXPECT_EQ(pools.states->pages_in_use(), 3u);
  EXPECT_EQ(pools.rings->pages_in_use(), 2u);
  expect_right(pass(cache, ids), ids, 100);
  // Cancelled, and run again.
  cache.commit(0);
  ASSERT_TRUE(cache.extend(1500).ok());
  expect_right(pass(cache, ids), ids, 100);
  cache.commit(1500);
  EXPECT_EQ(pools.states->pages_in_use(), 1u);
  EXPECT_EQ(pools.rings->pages_in_use(), 0u) << "at a page boundary";
}

TEST(RecurrentState, CheckpointsAreKeptSharedAndGivenBack) {
  const Pools pools;
  SequenceCache cache = pools.sequence();
  cache.want_checkpoints(4, {7, 0});
  const Ids ids(1000, 9);
  ASSERT_TRUE(cache.extend(640 + 20).ok());
  (void)pass(cache, ids);
  cache.commit(660);
  // After pages 3, 6 and 7, and the last.
  EXPECT_EQ(pools.states->pages_in_use(), 4u);
  std::vector<std::vector<PageRef>> prefix(2);
  for (std::uint32_t page = 0; page < 10; ++page) {
    EXPECT_EQ(cache.is_checkpoint(page), page == 3 || page == 6 || page == 7) << page;
    EXPECT_EQ(static_cast<bool>(cache.share(1, page)), cache.is_checkpoint(page) || page == 9);
    EXPECT_FALSE(cache.share(2, page));
    if (page < 7) prefix[0].push_back(cache.share(0, page));
    if (page < 7) prefix[1].push_back(cache.share(1, page));
  }
  EXPECT_EQ(cache.release_checkpoints(), 0u);
  EXPECT_EQ(pools.states->pages_in_use(), 3u);
  EXPECT_FALSE(cache.is_checkpoint(3));

  SequenceCache hit = pools.sequence();
  hit.adopt(7 * kPageTokens, prefix);
  prefix.clear();
  EXPECT_EQ(pools.states->pages_in_use(), 2u) << "the one that it goes on from, and the other's";
  ASSERT_TRUE(hit.extend(300).ok());
  expect_right(pass(hit, ids), ids, 7 * kPageTokens);
  hit.commit(300);
  SequenceCache copy = hit.fork();
  for (SequenceCache* each : {&hit, &copy}) {
    ASSERT_TRUE(each->extend(70).ok());
    expect_right(pass(*each, ids), ids, 7 * kPageTokens + 300);
    each->commit(70);
  }
}

TEST(RecurrentState, WithoutMemoryACheckpointIsSkippedAndAPassRefused) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  MemoryBudget budget(4 * kPage);
  const auto ledger = std::make_shared<MemoryLedger>(&budget);
  const auto keys = PagePool::create(64, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
  const auto rings = PagePool::create(64, MemoryTag::recurrent, std::make_shared<MemoryLedger>());
  const auto states = PagePool::create(kPage, MemoryTag::recurrent, ledger);
  SequenceCache cache({{keys, 0, GroupKind::attention},
                       {states, kRecurrentReach, GroupKind::recurrent},
                       {rings, kRingReach, GroupKind::ring}});
  const Ids ids(1000, 9);
  cache.want_checkpoints(1, {});
  ASSERT_TRUE(cache.extend(320).ok());
  expect_right(pass(cache, ids), ids, 0);
  cache.commit(320);
  budget.set_limit(2 * kPage);
  EXPECT_EQ(cache.extend(200).code(), Code::no_memory);
  EXPECT_EQ(cache.length(), 320u);
  EXPECT_GE(cache.release_checkpoints(), 5u);
  EXPECT_TRUE(cache.extend(100).ok());
  expect_right(pass(cache, ids), ids, 320);
}

}  // namespace
}  // namespace drafthouse
