#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace drafthouse {
namespace {

TEST(ThreadPool, EveryChunkRunsOnce) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (std::uint32_t round = 0; round < 2000; ++round) {
      const std::uint32_t chunks = round % 17;
      std::vector<int> seen(chunks, 0);
      pool.run(chunks, [&](unsigned thread, std::uint32_t chunk) {
        EXPECT_LT(thread, threads);
        ++seen[chunk];
      });
      EXPECT_EQ(seen, std::vector<int>(chunks, 1));
    }
  }
}

TEST(ThreadPool, SeveralCallersTakeTurns) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::vector<std::uint64_t> sums(4, 0);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::uint64_t> parts(8, 0);
        pool.run(8, [&](unsigned, std::uint32_t chunk) { parts[chunk] = chunk + 1; });
        for (const std::uint64_t part : parts) sums[i] += part;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::uint64_t sum : sums) EXPECT_EQ(sum, 200u * 36u);
}

TEST(ThreadPool, WakesAfterItsWorkersWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    // Work that outlasts the spinning of whoever finds no chunk left.
    std::uint64_t total = 0;
    pool.run(2, [&](unsigned, std::uint32_t chunk) {
      if (chunk != 0) return;
      std::atomic<std::uint32_t> count{0};
      while (count.fetch_add(1, std::memory_order_relaxed) < 2'000'000) {
      }
      total = 1;
    });
    EXPECT_EQ(total, 1u);
  }
}

}  // namespace
}  // namespace drafthouse
