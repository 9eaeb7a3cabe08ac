#include "cache/disk/maintenance.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "cache/disk/names.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using namespace test_disk;
namespace fs = std::filesystem;

const StateLayout kLayout = layout_full();

// The process may open few files more than it has open.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const auto open = std::distance(fs::directory_iterator("/proc/self/fd"), {});
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(open) + more;
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

std::size_t folders(const Bench& bench) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(fs::path(bench.folder.path()) / kVersionName), {}));
}

// One chat in each of `count` digests, 1 first.
void fill_digests(Bench& bench, std::uint8_t count) {
  auto directory = bench.open();
  for (std::uint8_t d = 1; d <= count; ++d) {
    auto section = bench.section(directory, d, kLayout);
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(d), kLayout, chat(d))));
  }
}

TEST(Maintenance, ListsVerifiesPrunesAndClears) {
  Bench bench;
  std::vector<fs::path> pages;
  {
    auto directory = bench.open();
    for (std::uint8_t d = 1; d <= 2; ++d) {
      auto section = bench.section(directory, d, kLayout);
      for (std::uint32_t i = 0; i < 6; ++i) {
        const std::string salt = i % 2 == 0 ? "" : "tenant";
        ASSERT_TRUE(
            bench.store(directory, *section, snapshot(digest(d), kLayout, chat(i, 3), salt)));
      }
    }
  }
  auto listed = list_disk_cache(posix_file_system(), bench.folder.path());
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  EXPECT_EQ(listed.value().bytes, charged(bench));
  ASSERT_EQ(listed.value().digests.size(), 2u);
  EXPECT_EQ(listed.value().digests[0].digest, digest(2).hex());  // used last
  EXPECT_EQ(listed.value().digests[0].snapshots, 6u);
  EXPECT_EQ(listed.value().digests[0].pages, 18u);
  EXPECT_EQ(listed.value().digests[0].tokens, 18u * 64);
  EXPECT_EQ(listed.value().digests[0].tenants, 2u);
  EXPECT_FALSE(listed.value().digests[0].locked);

  auto verified = verify_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt, false);
  ASSERT_TRUE(verified.ok());
  EXPECT_EQ(verified.value().pages, 36u);
  EXPECT_TRUE(verified.value().damaged.empty());
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(bench.folder.path()) / "v1" / digest(1).hex())) {
    if (entry.path().string().ends_with(".pages")) pages.push_back(entry.path());
  }
  {
    std::fstream file(pages.at(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1500);
    file.put('\x00');
    file.put('\x01');
  }
  fs::resize_file(pages.at(1), 100);
  verified = verify_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt, false);
  EXPECT_EQ(verified.value().damaged.size(), 2u);
  EXPECT_EQ(verified.value().set_aside, 0u);
  verified = verify_disk_cache(posix_file_system(), bench.folder.path(), digest(1).hex(), true);
  EXPECT_EQ(verified.value().damaged.size(), 2u);
  EXPECT_EQ(verified.value().set_aside, 2u);
  verified = verify_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt, false);
  EXPECT_TRUE(verified.value().damaged.empty());
  EXPECT_EQ(verified.value().runs, 10u);

  const std::uint64_t before = charged(bench);
  auto dry = prune_disk_cache(posix_file_system(), bench.folder.path(), before - 6 * 4096, true);
  ASSERT_TRUE(dry.ok());
  EXPECT_EQ(charged(bench), before);
  auto pruned =
      prune_disk_cache(posix_file_system(), bench.folder.path(), before - 6 * 4096, false);
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(pruned.value().runs, dry.value().runs);
  EXPECT_EQ(pruned.value().parts.at(0).digest, digest(1).hex());
  EXPECT_LE(charged(bench), before - 6 * 4096);
  EXPECT_EQ(pruned.value().bytes_after, charged(bench));

  {
    auto directory = bench.open();
    auto section = bench.section(directory, 2, kLayout);
    listed = list_disk_cache(posix_file_system(), bench.folder.path());
    EXPECT_TRUE(listed.value().digests[0].locked);
    auto cleared = clear_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt);
    ASSERT_TRUE(cleared.ok());
    EXPECT_EQ(cleared.value().busy, std::vector<std::string>{digest(2).hex()});
    EXPECT_EQ(pages_right(*section, digest(2), chat(5, 3), "tenant"), 3);
  }
  EXPECT_FALSE(fs::exists(fs::path(bench.folder.path()) / "v1" / digest(1).hex()));
  auto cleared = clear_disk_cache(posix_file_system(), bench.folder.path(), digest(2).hex());
  ASSERT_TRUE(cleared.ok());
  EXPECT_EQ(cleared.value().bytes_after, charged(bench));
  EXPECT_TRUE(fs::is_empty(fs::path(bench.folder.path()) / "v1"));
  const auto missing = clear_disk_cache(posix_file_system(), bench.folder.path(), digest(9).hex());
  EXPECT_EQ(missing.status().code(), Code::not_found);
  const auto nowhere = list_disk_cache(posix_file_system(), "/nowhere/at/all");
  EXPECT_EQ(nowhere.status().code(), Code::not_found);
  const auto not_ours = clear_disk_cache(
      posix_file_system(), fs::path(bench.folder.path()).parent_path().string(), std::nullopt);
  EXPECT_EQ(not_ours.status().code(), Code::invalid_argument);
}

TEST(Maintenance, TakesFewFilesForManyDigests) {
  Bench bench;
  fill_digests(bench, 120);
  const std::string path = bench.folder.path();
  const FewDescriptors few(24);
  auto listed = list_disk_cache(posix_file_system(), path);
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  EXPECT_EQ(listed.value().digests.size(), 120u);
  EXPECT_EQ(listed.value().bytes, charged(bench));
  auto verified = verify_disk_cache(posix_file_system(), path, std::nullopt, true);
  ASSERT_TRUE(verified.ok()) << verified.status().message();
  EXPECT_EQ(verified.value().pages, 120u);
  // Digests 1 to 60 were used before the others; emptied folders go.
  const std::uint64_t half = charged(bench) / 2;
  const auto dry = prune_disk_cache(posix_file_system(), path, half, true);
  ASSERT_TRUE(dry.ok()) << dry.status().message();
  EXPECT_EQ(folders(bench), 120u);
  const auto pruned = prune_disk_cache(posix_file_system(), path, half, false);
  ASSERT_TRUE(pruned.ok()) << pruned.status().message();
  EXPECT_LE(charged(bench), half);
  EXPECT_EQ(pruned.value().bytes_after, charged(bench));
  EXPECT_EQ(folders(bench), 120 - pruned.value().runs);
  EXPECT_FALSE(fs::exists(fs::path(path) / kVersionName / digest(1).hex()));
  EXPECT_TRUE(fs::exists(fs::path(path) / kVersionName / digest(120).hex()));
  const auto cleared = clear_disk_cache(posix_file_system(), path, std::nullopt);
  ASSERT_TRUE(cleared.ok()) << cleared.status().message();
  EXPECT_EQ(folders(bench), 0u);
}

TEST(Maintenance, SaysWhenFilesCannotBeOpened) {
  Bench bench;
  fill_digests(bench, 3);
  bool was_short = false;
  for (std::size_t more = 0; more < 16; ++more) {
    const FewDescriptors few(more);
    const auto listed = list_disk_cache(posix_file_system(), bench.folder.path());
    if (listed.ok()) {
      EXPECT_EQ(listed.value().digests.size(), 3u) << more;
      continue;
    }
    was_short = true;
    EXPECT_NE(listed.status().message().find("Too many open files"), std::string::npos)
        << more << ": " << listed.status().message();
  }
  EXPECT_TRUE(was_short);
}

// A writer with a budget meets more digests than it opens at once.
TEST(Maintenance, TheBudgetIsKeptAmongManyDigests) {
  Bench bench;
  fill_digests(bench, 200);
  const std::size_t before = folders(bench);
  bench.options.budget_bytes = charged(bench);
  const FewDescriptors few(320);
  auto directory = bench.open();
  auto section = bench.section(directory, 201, kLayout);
  for (std::uint32_t i = 0; i < 150; ++i) {
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(201), kLayout, chat(1000 + i))))
        << i;
    ASSERT_LE(charged(bench), bench.options.budget_bytes);
  }
  EXPECT_EQ(pages_right(*section, digest(201), chat(1149)), 1);
  EXPECT_LT(folders(bench), before - 100);
}

TEST(Maintenance, WhatDamageLeavesCanBeCleared) {
  Bench bench;
  fill_digests(bench, 2);
  const fs::path folder = fs::path(bench.folder.path()) / kVersionName / digest(1).hex();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.path().string().ends_with(".manifest")) continue;
    std::ofstream(entry.path(), std::ios::trunc) << "XX";
  }
  fs::remove(folder / kIndexName);
  const auto verified =
      verify_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt, true);
  ASSERT_TRUE(verified.ok()) << verified.status().message();
  EXPECT_EQ(verified.value().set_aside, 1u);
  ASSERT_TRUE(clear_disk_cache(posix_file_system(), bench.folder.path(), std::nullopt).ok());
  EXPECT_EQ(folders(bench), 0u);
}

// Somebody stopped in the middle of a change must not keep others from reading.
TEST(Maintenance, ReadsBesideALockThatIsHeldForLong) {
  Bench bench;
  fill_digests(bench, 1);
  std::unique_ptr<DiskFolder> root;
  ASSERT_EQ(posix_file_system().open_root(bench.folder.path(), false, root), 0);
  std::unique_ptr<DiskFile> lock;
  ASSERT_EQ(root->open_file(kLockName, OpenMode::write, lock), 0);
  ASSERT_EQ(lock->try_lock(), 0);
  const auto listed = list_disk_cache(posix_file_system(), bench.folder.path());
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  EXPECT_EQ(listed.value().digests.size(), 1u);
  bench.options.lock_wait_s = 0;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(pages_right(*section, digest(1), chat(1)), 1);
  lock->unlock();
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, chat(2))));
}

TEST(Maintenance, FilesThatOthersMayWriteAreNotTrusted) {
  Bench bench;
  fill_digests(bench, 3);
  const fs::path version = fs::path(bench.folder.path()) / kVersionName;
  // Of digest 1 the manifest, of 2 the pages, of 3 the log.
  for (const auto& entry : fs::recursive_directory_iterator(version)) {
    const std::string name = entry.path().string();
    const bool in_1 = name.find(digest(1).hex()) != std::string::npos;
    const bool in_2 = name.find(digest(2).hex()) != std::string::npos;
    const bool hit = in_1   ? name.ends_with(".manifest")
                     : in_2 ? name.ends_with(".pages")
                            : entry.path().filename() == kIndexName;
    if (!entry.is_regular_file() || !hit) continue;
    ASSERT_EQ(chmod(name.c_str(), 0666), 0);
  }
  {
    auto directory = bench.open();
    EXPECT_EQ(pages_right(*bench.section(directory, 1, kLayout), digest(1), chat(1)), 0);
    EXPECT_EQ(pages_right(*bench.section(directory, 2, kLayout), digest(2), chat(2)), 0);
    EXPECT_EQ(pages_right(*bench.section(directory, 3, kLayout), digest(3), chat(3)), 1);
    EXPECT_EQ(directory->counters().quarantined, 2u);
  }
  struct stat log{};
  ASSERT_EQ(stat((version / digest(3).hex() / kIndexName).c_str(), &log), 0);
  EXPECT_EQ(log.st_mode & 0777, 0600u);
  const fs::path key = fs::path(bench.folder.path()) / kKeyName;
  ASSERT_EQ(chmod(key.c_str(), 0666), 0);
  EXPECT_EQ(bench.open(), nullptr);
  const auto listed = list_disk_cache(posix_file_system(), bench.folder.path());
  ASSERT_FALSE(listed.ok());
  EXPECT_NE(listed.status().message().find("chmod 600"), std::string::npos);
}

}  // namespace
}  // namespace drafthouse
