#include "cache/page_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace drafthouse {
namespace {

TEST(PagePool, SharesCountAndTheLastOneGivesBack) {
  const auto pool = PagePool::create(4096, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
  PageRef page = pool->take().value();
  EXPECT_TRUE(page.unique());
  PageRef share = page;
  EXPECT_FALSE(page.unique());
  EXPECT_EQ(share.data(), page.data());
  page.reset();
  EXPECT_TRUE(share.unique());
  EXPECT_EQ(pool->pages_in_use(), 1u);
  share = PageRef();
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(PagePool, MemoryFollowsUseAndOneEmptySlabStays) {
  MemoryBudget budget;
  auto ledger = std::make_shared<MemoryLedger>(&budget);
  const auto pool = PagePool::create(std::size_t{2} << 20, MemoryTag::kv_pages, ledger);
  std::vector<PageRef> pages;
  for (int i = 0; i < 10; ++i) pages.push_back(pool->take().value());
  EXPECT_EQ(ledger->bytes(MemoryTag::kv_pages), std::size_t{20} << 20);
  pages.clear();
  EXPECT_EQ(ledger->bytes(MemoryTag::kv_pages), std::size_t{2} << 20);
  pool->trim();
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_EQ(budget.peak(), std::size_t{20} << 20);
}

TEST(PagePool, PagesKeepTheirPoolAlive) {
  PageRef page;
  {
    const auto pool = PagePool::create(64, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
    page = pool->take().value();
  }
  page.data()[63] = std::byte{7};
  page.reset();
}

TEST(PagePool, ReliefMayGivePagesOfTheSamePoolBack) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  MemoryBudget budget(3 * kPage);
  const auto pool =
      PagePool::create(kPage, MemoryTag::kv_pages, std::make_shared<MemoryLedger>(&budget));
  std::vector<PageRef> cached;
  for (int i = 0; i < 3; ++i) cached.push_back(pool->take().value());
  int asked = 0;
  budget.set_relief([&](std::size_t, const MemoryLedger&) {
    ++asked;
    if (cached.empty()) return false;
    cached.pop_back();
    return true;
  });
  const Result<PageRef> page = pool->take();
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_GE(asked, 1);
  EXPECT_LE(budget.used(), budget.limit());
  budget.set_relief({});
}

TEST(PagePool, ThreadsTakeAndShare) {
  const auto pool = PagePool::create(4096, MemoryTag::kv_pages, std::make_shared<MemoryLedger>());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool] {
      std::vector<PageRef> held;
      for (int i = 0; i < 2000; ++i) {
        PageRef page = pool->take().value();
        page.data()[0] = std::byte{1};
        held.push_back(page);
        if (held.size() > 20) held.erase(held.begin());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->pages_in_use(), 0u);
}

TEST(MemoryBudget, ReservesUpToItsLimitAndExplainsARefusal) {
  MemoryBudget budget(std::size_t{8} << 20);
  MemoryLedger a(&budget);
  {
    MemoryLedger b(&budget);
    ASSERT_TRUE(a.reserve(MemoryTag::weights, std::size_t{5} << 20).ok());
    ASSERT_TRUE(b.reserve(MemoryTag::taps, std::size_t{3} << 20).ok());
    const Status full = b.reserve(MemoryTag::taps, 1);
    EXPECT_EQ(full.code(), Code::no_memory);
    EXPECT_NE(full.message().find("8.0 MiB"), std::string::npos) << full.message();
    EXPECT_EQ(budget.used(), budget.limit());
  }
  EXPECT_EQ(budget.used(), std::size_t{5} << 20);
  a.remove(MemoryTag::weights, std::size_t{5} << 20);
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace drafthouse
