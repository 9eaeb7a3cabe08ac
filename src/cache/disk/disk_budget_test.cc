#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_section.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using namespace test_disk;
namespace fs = std::filesystem;

const StateLayout kLayout = layout_full();

TEST(DiskBudget, WhatWasUsedLongestAgoGoes) {
  Bench bench;
  bench.options.budget_bytes = 30 * 4096;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  for (std::uint32_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i)))) << i;
    ASSERT_LE(charged(bench), bench.options.budget_bytes);
    ASSERT_EQ(directory->usage().bytes, charged(bench));
    EXPECT_EQ(pages_right(*section, digest(1), chat(0)), 1) << i;  // used all the time
  }
  EXPECT_GT(directory->counters().evictions, 20u);
  EXPECT_EQ(pages_right(*section, digest(1), chat(39)), 1);
  EXPECT_EQ(pages_right(*section, digest(1), chat(1)), 0);
  // The order survives a restart.
  directory->flush(60);
  section = nullptr;
  directory = nullptr;
  directory = bench.open();
  section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(directory->usage().bytes, charged(bench));
  for (std::uint32_t i = 40; i < 44; ++i) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
  }
  EXPECT_EQ(pages_right(*section, digest(1), chat(0)), 1);
  EXPECT_EQ(pages_right(*section, digest(1), chat(39)), 1);
}

TEST(DiskBudget, ConversationsLoseTheirEndsFirst) {
  Bench bench;
  bench.options.budget_bytes = 24 * 4096;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  for (std::size_t pages = 1; pages <= 4; ++pages) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(1, pages))));
  }
  int before = 4;
  for (std::uint32_t i = 100; i < 112; ++i) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
    const int now = static_cast<int>(section->find("", chat(1, 4)).pages());
    EXPECT_LE(now, before);
    before = now;
  }
  EXPECT_EQ(before, 0);
}

TEST(DiskBudget, CountsAndEvictsWhatOtherModelsLeft) {
  Bench bench;
  bench.options.budget_bytes = 40 * 4096;
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    for (std::uint32_t i = 0; i < 12; ++i) {
      ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
    }
  }
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 2, kLayout);
    for (std::uint32_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(2), kLayout, chat(i)))) << i;
      ASSERT_LE(charged(bench), bench.options.budget_bytes);
    }
    EXPECT_GT(directory->counters().evictions, 0u);
  }
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(pages_right(*section, digest(1), chat(0)), 0);
  EXPECT_EQ(pages_right(*section, digest(1), chat(11)), 1);
}

TEST(DiskBudget, WhatOthersHoldStaysAndTheWriteIsDropped) {
  Bench bench;
  bench.options.budget_bytes = 24 * 4096;
  auto mine = bench.open();
  auto first = bench.section(mine, 1, kLayout);
  for (std::uint32_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(bench.store(mine, *first, snapshot(digest(1), kLayout, chat(i))));
  }
  auto theirs = bench.open();
  auto second = bench.section(theirs, 2, kLayout);
  for (std::uint32_t i = 0; i < 8; ++i) {
    static_cast<void>(bench.store(theirs, *second, snapshot(digest(2), kLayout, chat(i))));
    ASSERT_LE(charged(bench), bench.options.budget_bytes);
  }
  EXPECT_GT(theirs->counters().evictions + theirs->counters().drops_budget, 0u);
  EXPECT_EQ(mine->counters().evictions, 0u);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(pages_right(*first, digest(1), chat(i)), 1);
  // A run larger than the whole budget.
  EXPECT_FALSE(bench.store(mine, *first, snapshot(digest(1), kLayout, chat(99, 200))));
  EXPECT_EQ(mine->counters().drops_budget, 1u);
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(pages_right(*first, digest(1), chat(i)), 1);
}

TEST(DiskBudget, OtherVersionsAndUnknownFilesCountAndStay) {
  Bench bench;
  bench.options.budget_bytes = 24 * 4096;
  fs::create_directories(bench.folder.path());
  {
    auto directory = bench.open();
  }
  const fs::path other = fs::path(bench.folder.path()) / "v9";
  fs::create_directories(other);
  {
    std::ofstream(other / "big") << std::string(14 * 4096, 'x');
  }
  fs::remove(fs::path(bench.folder.path()) / "usage");  // counted anew
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(directory->usage().bytes, charged(bench));
  for (std::uint32_t i = 0; i < 8; ++i) {
    static_cast<void>(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
    ASSERT_LE(charged(bench), bench.options.budget_bytes);
  }
  EXPECT_TRUE(fs::exists(other / "big"));
}

TEST(DiskBudget, ALowerLimitTrimsAsNewDataComesAndSaysSo) {
  Bench bench;
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    for (std::uint32_t i = 0; i < 30; ++i) {
      ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
    }
  }
  bench.log.lines.clear();
  bench.options.budget_bytes = 24 * 4096;
  std::uint64_t before = charged(bench);
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(bench.log.lines.size(), 1u);
  EXPECT_EQ(charged(bench), before);  // nothing goes at the start
  for (std::uint32_t i = 100; charged(bench) > bench.options.budget_bytes; ++i) {
    ASSERT_LT(i, 200u);
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
    EXPECT_LT(charged(bench), before);
    before = charged(bench);
    EXPECT_EQ(pages_right(*section, digest(1), chat(29)),
              i < 102 ? 1 : pages_right(*section, digest(1), chat(29)));
  }
}

TEST(DiskBudget, MatchesHoldWhatTheyFound) {
  Bench bench;
  bench.options.budget_bytes = 24 * 4096;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(0))));
  const DiskMatch match = section->find("", chat(0));
  for (std::uint32_t i = 1; i < 30; ++i) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(i))));
  }
  std::vector<std::byte> page(1000);
  EXPECT_TRUE(section->read(match, 0, 0, page).ok());
}

TEST(DiskBudget, TheFreeFloorIsKept) {
  Bench bench;
  bench.options.free_floor_bytes = std::uint64_t{1} << 60;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(0))));
  EXPECT_EQ(section->counters().drops_free_floor, 1u);
}

TEST(DirectoryUsage, IsCountedAnewWhenItsWriterDiedOrItIsDamaged) {
  Bench bench;
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(0))));
  }
  DiskMeter meter;
  std::unique_ptr<DiskFolder> root;
  ASSERT_EQ(posix_file_system().open_root(bench.folder.path(), false, root), 0);
  const auto bytes = [&] {
    DirectoryUsage usage(posix_file_system(), bench.clock, *root, meter, bench.options.lock_wait_s);
    DirectoryUsage::Change change;
    EXPECT_EQ(usage.lock(change), 0);
    return change.bytes();
  };
  const std::uint64_t real = charged(bench);
  EXPECT_EQ(bytes(), real);
  EXPECT_EQ(meter.read().scans, 0u);
  const fs::path record = fs::path(bench.folder.path()) / "usage";
  for (const std::uint64_t at : {0u, 4u, 8u, 16u, 24u, 32u}) {
    std::fstream file(record, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('\x5a');
    file.close();
    EXPECT_EQ(bytes(), real) << at;
  }
  EXPECT_EQ(meter.read().scans, 6u);
  fs::resize_file(record, 10);
  EXPECT_EQ(bytes(), real);
  fs::remove(record);
  EXPECT_EQ(bytes(), real);
  EXPECT_EQ(bytes(), real);
  EXPECT_EQ(meter.read().scans, 8u);
}

}  // namespace
}  // namespace drafthouse
