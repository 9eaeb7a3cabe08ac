#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>

#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_section.h"
#include "cache/disk/lock_file.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using namespace test_disk;
namespace fs = std::filesystem;

const StateLayout kLayout = layout_windowed();

std::vector<fs::path> files_ending(const Bench& bench, const std::string& suffix,
                                   bool with_quarantine = false) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(bench.folder.path())) {
    const std::string path = entry.path().string();
    if (!with_quarantine && path.find("quarantine") != std::string::npos) continue;
    if (entry.is_regular_file() && path.ends_with(suffix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void flip_a_bit(const fs::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 4));
}

// Fails one kind of operation on one kind of thing.
FaultyFileSystem::Hook failing(const std::string& point, Errno error, bool partial = false) {
  return [=](const FileOperation& operation) {
    return operation.point() == point ? Fault{error, partial} : Fault{};
  };
}

TEST(DiskFaults, WritesThatFailStoreNothingAndAreTriedAgainLater) {
  for (const char* point :
       {"before create pages", "before resize pages", "before write pages", "before sync pages",
        "before rename pages", "before create manifest", "before write manifest",
        "before sync manifest", "before rename manifest", "before sync folder",
        "before create folder"}) {
    for (const Errno error : {ENOSPC, EIO, EROFS}) {
      Bench bench;
      auto directory = bench.open();
      auto section = bench.section(directory, 1, kLayout);
      const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
      bench.files.set_hook(failing(point, error, true));
      EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, text))) << point;
      EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, text))) << point;
      EXPECT_EQ(section->counters().write_errors, 1u) << point;
      EXPECT_EQ(section->counters().drops_suspended, 1u) << point;
      EXPECT_EQ(bench.log.lines.size(), 1u) << point;
      EXPECT_EQ(pages_right(*section, digest(1), text), 0) << point;
      bench.files.set_hook(nullptr);
      bench.clock.advance(60);
      EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text))) << point;
      EXPECT_EQ(pages_right(*section, digest(1), text), 3) << point;
      EXPECT_EQ(bench.log.lines.size(), 2u) << point;
      EXPECT_EQ(files_ending(bench, ".tmp").size(), 0u) << point;
      EXPECT_EQ(directory->usage().bytes, charged(bench)) << point;
    }
  }
}

// Cleaning up may fail as well: what is left then goes at the next start.
TEST(DiskFaults, LeftoversGoAtTheNextStart) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    bool failed = false;
    bench.files.set_hook([&](const FileOperation& operation) {
      failed = failed || operation.point() == "before rename manifest";
      const bool hit = failed && (operation.kind == "rename" || operation.kind == "remove");
      return hit ? Fault{EIO, false} : Fault{};
    });
    EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
    bench.files.set_hook(nullptr);
    EXPECT_EQ(files_ending(bench, ".pages").size(), 2u);
    EXPECT_EQ(files_ending(bench, ".tmp").size(), 1u);
  }
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_EQ(directory->counters().leftovers_removed, 3u);
  EXPECT_TRUE(files_ending(bench, ".pages").empty());
  EXPECT_TRUE(files_ending(bench, ".tmp").empty());
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
}

TEST(DiskFaults, ReadErrorsAreMissesOfThatReadOnly) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  bench.files.set_hook(failing("before read pages", EIO));
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_EQ(section->counters().read_errors, 1u);
  bench.files.set_hook(nullptr);
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
}

TEST(DiskFaults, DamagedFilesAreSetAsideAndNeverUsed) {
  std::mt19937 random(7);
  for (const char* suffix : {".0.pages", ".1.pages", ".manifest", "/index"}) {
    for (int round = 0; round < 12; ++round) {
      Bench bench;
      const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
      const bool restart = round % 2 == 0;
      const bool truncate = round % 3 == 0;
      auto directory = bench.open();
      auto section = bench.section(directory, 1, kLayout);
      bench.store(directory, *section, snapshot(digest(1), kLayout, text));
      if (restart || std::string(suffix) == ".manifest") {
        section = nullptr;
        directory = nullptr;
      }
      const fs::path victim = files_ending(bench, suffix).at(0);
      const std::uint64_t at = random() % fs::file_size(victim);
      if (truncate)
        fs::resize_file(victim, at);
      else
        flip_a_bit(victim, at);
      if (directory == nullptr) {
        directory = bench.open();
        section = bench.section(directory, 1, kLayout);
      }
      const int right = pages_right(*section, digest(1), text);
      if (std::string(suffix) == "/index") {
        EXPECT_EQ(right, 3);
        continue;
      }
      EXPECT_EQ(right, 0) << suffix << " " << round;
      EXPECT_EQ(directory->counters().quarantined, 1u) << suffix << " " << round;
      EXPECT_EQ(files_ending(bench, ".pages").size(), 0u);
      EXPECT_EQ(files_ending(bench, ".pages", true).size(), 2u);
      // It is computed again and stored again.
      EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
      EXPECT_EQ(pages_right(*section, digest(1), text), 3);
      EXPECT_EQ(directory->usage().bytes, charged(bench));
    }
  }
}

TEST(DiskFaults, FilesOfAnotherDigestOrVersionAreSetAside) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  }
  const fs::path version = fs::path(bench.folder.path()) / "v1";
  fs::copy(version / digest(1).hex(), version / digest(2).hex(), fs::copy_options::recursive);
  fs::create_directories(fs::path(bench.folder.path()) / "v2" / "something");
  std::ofstream(fs::path(bench.folder.path()) / "v2" / "something" / "file") << "another version";
  std::ofstream(version / digest(2).hex() / "notes") << "not ours";
  auto directory = bench.open();
  auto section = bench.section(directory, 2, kLayout);
  EXPECT_EQ(pages_right(*section, digest(2), text), 0);
  EXPECT_EQ(directory->counters().quarantined, 1u);
  EXPECT_TRUE(section->clear_all().ok());
  EXPECT_TRUE(fs::exists(version / digest(2).hex() / "notes"));
  EXPECT_TRUE(fs::exists(fs::path(bench.folder.path()) / "v2" / "something" / "file"));
}

TEST(DiskFaults, TheQuarantineIsBounded) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_full());
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::vector<std::uint32_t> text = tokens(i, 64);
    ASSERT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_full(), text)));
    flip_a_bit(files_ending(bench, ".pages").at(0), 500);
    EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  }
  EXPECT_EQ(section->counters().quarantined, 40u);
  EXPECT_LE(files_ending(bench, "", true).size(), 32u + 6u);
}

TEST(DiskFaults, AVanishedFileIsAMiss) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  fs::remove(files_ending(bench, ".0.pages").at(0));
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_EQ(section->counters().vanished, 1u);
  EXPECT_EQ(section->counters().quarantined, 0u);
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
}

TEST(DiskFaults, AVanishedDirectoryIsMadeAnew) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  fs::remove_all(bench.folder.path());
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, tokens(2, 128))));
  bench.clock.advance(60);
  directory->drive();
  EXPECT_TRUE(section->writable());
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
  // Only the digest's folder.
  fs::remove_all(fs::path(bench.folder.path()) / "v1" / digest(1).hex());
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  bench.clock.advance(60);
  directory->drive();
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
}

TEST(DiskFaults, ALockFileThatWasReplacedIsALostLock) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_TRUE(section->writable());
  fs::remove(fs::path(bench.folder.path()) / "v1" / digest(1).hex() / "lock");
  auto other = bench.open();
  auto theirs = bench.section(other, 1, kLayout);
  EXPECT_TRUE(theirs->writable());
  bench.clock.advance(5);
  directory->drive();
  EXPECT_FALSE(section->writable());
}

// Of two processes that make the same directory, the later one finds it half made.
TEST(DiskFaults, ADirectoryThatAnotherProcessJustMakesIsTaken) {
  Bench bench;
  fs::create_directories(bench.folder.path());
  std::shared_ptr<DiskDirectory> other;
  bench.files.set_hook([&](const FileOperation& operation) {
    if (operation.point() == "before list folder" && other == nullptr) {
      other = DiskDirectory::open(posix_file_system(), bench.clock, bench.options, {}).value();
    }
    return Fault{};
  });
  const auto directory = bench.open();
  ASSERT_NE(other, nullptr);
  ASSERT_NE(directory, nullptr);
  EXPECT_EQ(directory->usage().off, "");
}

TEST(DiskFaults, WithoutLocksItIsOnlyRead) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  }
  for (const Errno error : {ENOLCK, EOPNOTSUPP}) {
    bench.log.lines.clear();
    bench.files.set_hook(failing("before lock lock", error));
    auto directory = bench.open();
    ASSERT_NE(directory, nullptr);
    auto section = bench.section(directory, 1, kLayout);
    EXPECT_FALSE(section->writable());
    EXPECT_EQ(pages_right(*section, digest(1), text), 3);
    EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, tokens(2, 128))));
    bench.clock.advance(60);
    directory->drive();
    EXPECT_EQ(bench.log.lines.size(), 1u);
    bench.files.set_hook(nullptr);
    bench.clock.advance(60);
    directory->drive();
    EXPECT_TRUE(section->writable());
  }
}

TEST(DiskFaults, AReadOnlyDirectoryIsRead) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, kLayout);
    bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  }
  bench.files.set_hook([](const FileOperation& operation) {
    const bool writes = operation.kind != "open" && operation.kind != "read" &&
                        operation.kind != "stat" && operation.kind != "list" &&
                        operation.kind != "lock";
    return writes ? Fault{EROFS, false} : Fault{};
  });
  auto directory = bench.open();
  ASSERT_NE(directory, nullptr);
  auto section = bench.section(directory, 1, kLayout);
  EXPECT_FALSE(section->writable());
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
  EXPECT_FALSE(bench.store(directory, *section, snapshot(digest(1), kLayout, tokens(2, 128))));
  EXPECT_EQ(section->counters().drops_read_only, 1u);
  EXPECT_EQ(section->why_read_only(), "it cannot be written (Read-only file system)");
  bench.files.set_hook(nullptr);
  bench.clock.advance(60);
  directory->drive();
  EXPECT_TRUE(section->writable());
  EXPECT_EQ(section->why_read_only(), "");
}

TEST(DiskFaults, ADirectoryThatCannotBeMadeIsTriedAgain) {
  Bench bench;
  bench.files.set_hook([](const FileOperation& operation) {
    return operation.kind == "create" || operation.kind == "open" ? Fault{ENOSPC, false} : Fault{};
  });
  auto directory = bench.open();
  ASSERT_NE(directory, nullptr);
  EXPECT_NE(directory->usage().off, "");
  auto section = bench.section(directory, 1, kLayout);
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_NE(section->find("", text).why_not_more().find("No space left"), std::string::npos);
  EXPECT_FALSE(section->offer(snapshot(digest(1), kLayout, text)));
  EXPECT_EQ(bench.log.lines.size(), 1u);
  bench.files.set_hook(nullptr);
  bench.clock.advance(60);
  directory->drive();
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), kLayout, text)));
  EXPECT_EQ(directory->usage().off, "");
}

TEST(DiskFaults, DirectoriesOfOthersAreRefused) {
  Bench bench;
  const auto refusal = [&] {
    const auto opened =
        DiskDirectory::open(bench.files, bench.clock, bench.options, bench.log.fn());
    return opened.ok() ? Code::ok : opened.status().code();
  };
  fs::create_directories(bench.folder.path());
  std::ofstream(fs::path(bench.folder.path()) / "thesis.txt") << "mine";
  EXPECT_EQ(refusal(), Code::invalid_argument);  // not empty, no marker
  fs::remove(fs::path(bench.folder.path()) / "thesis.txt");
  chmod(bench.folder.path().c_str(), 0777);
  EXPECT_EQ(refusal(), Code::invalid_argument);
  chmod(bench.folder.path().c_str(), 0755);
  EXPECT_EQ(refusal(), Code::ok);
  bench.files.set_user(12345);
  EXPECT_EQ(refusal(), Code::invalid_argument);
  std::ofstream(fs::path(bench.folder.path()) / "drafthouse-cache") << "format of the year 3000\n";
  bench.files.set_user(~0u);
  EXPECT_EQ(refusal(), Code::unsupported);
  bench.options.directory = bench.folder.path() + "/drafthouse-cache";
  EXPECT_EQ(refusal(), Code::invalid_argument);  // a file
}

TEST(DiskFaults, LinksAreNotFollowed) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  auto directory = bench.open();
  auto section = bench.section(directory, 1, kLayout);
  bench.store(directory, *section, snapshot(digest(1), kLayout, text));
  const fs::path pages = files_ending(bench, ".0.pages").at(0);
  const fs::path elsewhere = fs::path(bench.folder.path()).parent_path() / "elsewhere";
  fs::rename(pages, elsewhere);
  fs::create_symlink(elsewhere, pages);
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_TRUE(fs::exists(elsewhere));
  section = nullptr;
  directory = nullptr;
  // A link in the place of a digest's folder.
  const fs::path folder = fs::path(bench.folder.path()) / "v1" / digest(2).hex();
  fs::create_directories(elsewhere.string() + "2");
  fs::create_directory_symlink(elsewhere.string() + "2", folder);
  directory = bench.open();
  section = bench.section(directory, 2, kLayout);
  EXPECT_FALSE(section->writable());
  EXPECT_TRUE(fs::is_empty(elsewhere.string() + "2"));
}

TEST(LockFile, IsNotKeptByAChild) {
  Bench bench;
  std::unique_ptr<DiskFolder> root;
  ASSERT_EQ(posix_file_system().open_root(bench.folder.path(), true, root), 0);
  LockFile mine;
  LockFile theirs;
  Errno error = 0;
  ASSERT_EQ(mine.try_take(*root, "lock", error), LockFile::Outcome::held);
  EXPECT_EQ(theirs.try_take(*root, "lock", error), LockFile::Outcome::busy);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(go[1]);
    _exit(read(go[0], &byte, 1) >= 0 ? 0 : 1);  // until the parent closes its end
  }
  mine.release();
  EXPECT_EQ(theirs.try_take(*root, "lock", error), LockFile::Outcome::held);
  close(go[0]);
  close(go[1]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace drafthouse
