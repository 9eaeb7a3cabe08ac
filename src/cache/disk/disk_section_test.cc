#include "cache/disk/disk_section.h"

#include <gtest/gtest.h>

#include <fstream>

#include "cache/disk/directory_usage.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using namespace test_disk;
namespace fs = std::filesystem;

// Files below the cache directory whose names end so.
std::vector<fs::path> files_ending(const Bench& bench, const std::string& suffix) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(bench.folder.path())) {
    if (entry.is_regular_file() && entry.path().string().ends_with(suffix)) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

TEST(DiskSection, StoresAndReadsBackInTheSameProcessAndTheNext) {
  Bench bench;
  const std::vector<std::uint32_t> text = tokens(1, 10 * 64 + 5);
  {
    auto directory = bench.open();
    auto section = bench.section(directory, 1, layout_windowed());
    EXPECT_TRUE(section->writable());
    EXPECT_EQ(section->find("", text).why_not_more(), "nothing is stored");
    EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_windowed(), text)));
    EXPECT_EQ(pages_right(*section, digest(1), text), 10);
    EXPECT_EQ(section->counters().snapshots_stored, 1u);
    EXPECT_EQ(directory->usage().bytes, charged(bench));
  }
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_windowed());
  EXPECT_EQ(pages_right(*section, digest(1), text), 10);
  EXPECT_EQ(directory->usage().bytes, charged(bench));
  // Another digest, another salt: nothing.
  EXPECT_EQ(pages_right(*section, digest(1), text, "tenant"), 0);
  auto other = bench.section(directory, 2, layout_windowed());
  EXPECT_EQ(pages_right(*other, digest(2), text), 0);
}

TEST(DiskSection, FilesAndFoldersAreOursAlone) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_full());
  bench.store(directory, *section, snapshot(digest(1), layout_full(), tokens(1, 128), "secret"));
  for (const auto& entry : fs::recursive_directory_iterator(bench.folder.path())) {
    const auto mode = static_cast<unsigned>(fs::status(entry.path()).permissions());
    EXPECT_EQ(mode, entry.is_directory() ? 0700u : 0600u) << entry.path();
    EXPECT_EQ(entry.path().string().find("secret"), std::string::npos);
  }
  EXPECT_EQ(static_cast<unsigned>(fs::status(bench.folder.path()).permissions()), 0700u);
}

TEST(DiskSection, AGrowingConversationStoresOnlyWhatIsNew) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_full());
  std::vector<std::uint32_t> text = tokens(1, 4 * 64);
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(section->counters().writes, 4u);
  const std::vector<std::uint32_t> more = tokens(2, 3 * 64);
  text.insert(text.end(), more.begin(), more.end());
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(section->counters().writes, 7u);
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(section->counters().writes, 7u);
  EXPECT_EQ(pages_right(*section, digest(1), text), 7);
  // A branch inside the first run.
  std::vector<std::uint32_t> branch(text.begin(), text.begin() + 2 * 64);
  branch.insert(branch.end(), more.begin(), more.end());
  EXPECT_EQ(pages_right(*section, digest(1), branch), 2);
  EXPECT_EQ(section->find("", branch).why_not_more(), "differs at token 128");
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_full(), branch)));
  EXPECT_EQ(section->counters().writes, 10u);
  EXPECT_EQ(pages_right(*section, digest(1), branch), 5);
  section = nullptr;
  directory = nullptr;
  directory = bench.open();
  section = bench.section(directory, 1, layout_full());
  EXPECT_EQ(pages_right(*section, digest(1), branch), 5);
  EXPECT_EQ(pages_right(*section, digest(1), text), 7);
}

TEST(DiskSection, WindowsAreFoundWhereTheirPagesAre) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_windowed());
  const std::vector<std::uint32_t> text = tokens(1, 8 * 64);
  bench.store(directory, *section, snapshot(digest(1), layout_windowed(), text));
  // The window's pages at 5 were never there.
  const std::vector<std::uint32_t> part(text.begin(), text.begin() + 5 * 64);
  EXPECT_EQ(pages_right(*section, digest(1), part), 0);
  EXPECT_EQ(section->find("", part).why_not_more(), "pages before token 320 are not stored");
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_windowed(), part)));
  EXPECT_EQ(pages_right(*section, digest(1), part), 5);
  EXPECT_EQ(pages_right(*section, digest(1), text), 8);
  // Only the window's pages were new.
  EXPECT_EQ(section->counters().writes, 8u + 2u + 2u);
}

// A draft's context: a window, and a beginning that stays.
StateLayout layout_draft(std::uint32_t sink) {
  return {{{.page_bytes = 512, .reach = 130, .draft = true, .sink = sink}}};
}

std::vector<std::uint32_t> pages_there(DiskSection& section,
                                       const std::vector<std::uint32_t>& tokens) {
  const DiskMatch match = section.find("", tokens);
  std::vector<std::uint32_t> there;
  for (std::uint32_t p = 0; p < match.pages(); ++p) {
    if (match.has(0, p)) there.push_back(p);
  }
  return there;
}

// Whatever of a draft's context is there is stored: pages far from the last ones, without what
// comes before them, and without a sink.
TEST(DiskSection, ADraftsContextMayHaveGaps) {
  for (const std::uint32_t sink : {0u, 64u}) {
    for (const std::size_t run_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
      Bench bench;
      bench.options.run_bytes = run_bytes;
      auto directory = bench.open();
      const StateLayout layout = layout_draft(sink);
      const std::vector<std::uint32_t> text = tokens(1, 12 * 64);
      const std::vector<std::uint32_t> part(text.begin(), text.begin() + 6 * 64);
      {
        auto section = bench.section(directory, 1, layout);
        EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout, text)));
        EXPECT_EQ(section->counters().drops_cleared + section->counters().drops_incomplete, 0u);
        EXPECT_EQ(pages_there(*section, text), (std::vector<std::uint32_t>{9, 10, 11}));
        // The context of a place before: only its pages are new.
        EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout, part)));
        EXPECT_EQ(section->counters().writes, 6u);
        EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout, part)));
        EXPECT_EQ(section->counters().writes, 6u);
      }
      directory = nullptr;
      directory = bench.open();
      auto section = bench.section(directory, 1, layout);
      EXPECT_EQ(pages_there(*section, text), (std::vector<std::uint32_t>{3, 4, 5, 9, 10, 11}));
      EXPECT_EQ(pages_right(*section, digest(1), text), 12);
      EXPECT_EQ(pages_right(*section, digest(1), part), 6);
      EXPECT_EQ(directory->usage().bytes, charged(bench));
    }
  }
}

TEST(DiskSection, PagesOfNoBytesAreLegal) {
  Bench bench;
  const StateLayout layout{{{1000, 0, false}, {0, 0, false}}};
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout);
  const std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout, text)));
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
}

TEST(DiskSection, SectionsOfOneDigestShareAndOthersDoNotDisturb) {
  Bench bench;
  auto directory = bench.open();
  auto first = bench.section(directory, 1, layout_full());
  auto second = bench.section(directory, 1, layout_full());
  EXPECT_TRUE(first->writable());
  EXPECT_TRUE(second->writable());
  const std::vector<std::uint32_t> text = tokens(1, 128);
  bench.store(directory, *first, snapshot(digest(1), layout_full(), text));
  EXPECT_EQ(pages_right(*second, digest(1), text), 2);
  first = nullptr;
  EXPECT_TRUE(second->writable());
  const auto refused = DiskSection::open(directory, digest(1), layout_windowed());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::mismatch);
}

TEST(DiskSection, AnotherProcessReadsFollowsAndTakesOver) {
  Bench bench;
  auto mine = bench.open();
  auto writer = bench.section(mine, 1, layout_full());
  auto theirs = bench.open();
  auto reader = bench.section(theirs, 1, layout_full());
  auto free_digest = bench.section(theirs, 2, layout_full());
  EXPECT_FALSE(reader->writable());
  EXPECT_TRUE(free_digest->writable());
  EXPECT_EQ(reader->why_read_only(), "another process writes it");
  EXPECT_EQ(free_digest->why_read_only(), "");
  std::vector<std::uint32_t> text = tokens(1, 3 * 64);
  EXPECT_TRUE(bench.store(mine, *writer, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(pages_right(*reader, digest(1), text), 3);
  const std::vector<std::uint32_t> more = tokens(2, 64);
  text.insert(text.end(), more.begin(), more.end());
  EXPECT_FALSE(bench.store(theirs, *reader, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(reader->counters().drops_read_only, 1u);
  EXPECT_TRUE(bench.store(mine, *writer, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(pages_right(*reader, digest(1), text), 4);
  EXPECT_EQ(reader->clear_all().code(), Code::busy);
  EXPECT_TRUE(writer->clear_all().ok());
  EXPECT_EQ(pages_right(*reader, digest(1), text), 0);
  EXPECT_EQ(reader->counters().vanished, 1u);
  writer = nullptr;
  mine = nullptr;
  theirs->drive();
  EXPECT_FALSE(reader->writable());  // not before the clock says so
  bench.clock.advance(5);
  theirs->drive();
  EXPECT_TRUE(reader->writable());
  EXPECT_EQ(reader->counters().takeovers, 1u);
  EXPECT_TRUE(bench.store(theirs, *reader, snapshot(digest(1), layout_full(), text)));
  EXPECT_EQ(theirs->usage().bytes, charged(bench));
}

TEST(DiskSection, ClearsOneSaltOrAll) {
  Bench bench;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_full());
  const std::vector<std::uint32_t> text = tokens(1, 5 * 64);
  for (const char* salt : {"", "a", "b"}) {
    bench.store(directory, *section, snapshot(digest(1), layout_full(), text, salt));
  }
  EXPECT_TRUE(section->clear("a").ok());
  EXPECT_EQ(pages_right(*section, digest(1), text, "a"), 0);
  EXPECT_EQ(pages_right(*section, digest(1), text, "b"), 5);
  // What waits is dropped as well, for that salt only.
  std::vector<std::uint32_t> more = tokens(2, 5 * 64);
  int stored = 0;
  int dropped = 0;
  for (const char* salt : {"a", "b"}) {
    DiskSnapshot offer = snapshot(digest(1), layout_full(), more, salt);
    offer.done = [&](bool all) { ++(all ? stored : dropped); };
    EXPECT_TRUE(section->offer(std::move(offer)));
  }
  EXPECT_TRUE(section->clear("a").ok());
  directory->flush(60);
  EXPECT_EQ(stored, 1);
  EXPECT_EQ(dropped, 1);
  EXPECT_EQ(pages_right(*section, digest(1), more, "b"), 5);
  EXPECT_TRUE(section->clear_all().ok());
  EXPECT_EQ(pages_right(*section, digest(1), text), 0);
  EXPECT_TRUE(files_ending(bench, ".pages").empty());
  EXPECT_EQ(directory->usage().bytes, charged(bench));
}

TEST(DiskSection, TheQueueKeepsTheStartOfAPrompt) {
  Bench bench;
  bench.options.queue_bytes = 3500;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_full());
  const std::vector<std::uint32_t> text = tokens(1, 8 * 64);
  bool called = false;
  DiskSnapshot offer = snapshot(digest(1), layout_full(), text);
  offer.done = [&](bool all) {
    called = true;
    EXPECT_FALSE(all);
  };
  EXPECT_TRUE(section->offer(std::move(offer)));
  EXPECT_EQ(directory->usage().queued_bytes, 3000u);
  EXPECT_FALSE(section->offer(snapshot(digest(1), layout_full(), tokens(9, 64))));
  EXPECT_EQ(section->counters().drops_queue, 2u);
  directory->flush(60);
  EXPECT_TRUE(called);
  EXPECT_EQ(pages_right(*section, digest(1), text), 3);
  EXPECT_EQ(directory->usage().queued_bytes, 0u);
}

TEST(DiskSection, LongSnapshotsBecomeSeveralRuns) {
  Bench bench;
  bench.options.run_bytes = 2500;
  const std::vector<std::uint32_t> text = tokens(1, 9 * 64);
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_windowed());
  EXPECT_TRUE(bench.store(directory, *section, snapshot(digest(1), layout_windowed(), text)));
  EXPECT_EQ(files_ending(bench, ".manifest").size(), 6u);
  section = nullptr;
  directory = bench.open();
  section = bench.section(directory, 1, layout_windowed());
  EXPECT_EQ(pages_right(*section, digest(1), text), 9);
}

TEST(DiskSection, WithItsOwnThread) {
  Bench bench;
  bench.options.threaded = true;
  auto directory = bench.open();
  auto section = bench.section(directory, 1, layout_windowed());
  std::atomic<int> stored{0};
  directory->begin_request();
  for (std::uint32_t i = 0; i < 20; ++i) {
    DiskSnapshot offer = snapshot(digest(1), layout_windowed(), tokens(i, 4 * 64));
    offer.done = [&](bool all) { stored += all ? 1 : 0; };
    EXPECT_TRUE(section->offer(std::move(offer)));
  }
  EXPECT_TRUE(directory->flush(60));
  directory->end_request();
  EXPECT_EQ(stored.load(), 20);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(pages_right(*section, digest(1), tokens(i, 4 * 64)), 4);
  }
  EXPECT_TRUE(section->clear_all().ok());
  EXPECT_EQ(pages_right(*section, digest(1), tokens(3, 4 * 64)), 0);
}

}  // namespace
}  // namespace drafthouse
