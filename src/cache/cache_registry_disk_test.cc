// The registry's statements that need a disk tier.

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "cache/cache_registry.h"
#include "cache/cache_test_pages.h"
#include "cache/disk/test_disk.h"
#include "cache/prefix_flow.h"

namespace drafthouse {
namespace {

const CacheIdentity kA{.target = "a", .draft = "a-draft", .label = ""};
const CacheIdentity kB{.target = "b", .draft = "b-draft", .label = ""};

StateSpec spec_of(std::uint8_t weights) {
  StateSpec spec;
  spec.target.bytes.fill(weights);
  spec.draft.bytes.fill(static_cast<std::uint8_t>(weights + 100));
  spec.fields = {{"weights", std::to_string(weights)}};
  spec.layout = {{{.page_bytes = 256, .reach = 0, .draft = false},
                  {.page_bytes = 128, .reach = 0, .draft = true}}};
  return spec;
}

// A directory whose file system can be told to fail, or to wait.
struct DiskHost {
  explicit DiskHost(bool threaded = false)
      : disks(files, clock, log.fn(), threaded), registry(&disks) {
    config.disk_directory = folder.path();
    config.disk_free_bytes = 0;
  }

  test_disk::Folder folder;
  FaultyFileSystem files{posix_file_system()};
  test_disk::FakeClock clock;
  test_disk::Log log;
  DiskDirectories disks;
  CacheRegistry registry;
  CacheConfig config;
};

std::uint32_t publish(CacheManager& manager, std::uint32_t seed, std::size_t count) {
  const auto tokens = made_up_tokens(seed, count);
  return manager.publish("", tokens, made_up_pages(*manager.pages(), 9, tokens), true).value();
}

// What a request finds, after reading what is on disk; wrong bytes fail the test.
CacheHit find(CacheManager& manager, std::uint32_t seed, std::size_t count) {
  const auto prompt = made_up_tokens(seed, count + 1);
  CacheHit hit = manager.lookup("", prompt, true).value();
  manager.restore(hit);
  for (std::uint32_t p = 0; p < hit.tokens / kPageTokens; ++p) {
    const auto prefix = std::span(prompt).first((p + 1) * kPageTokens);
    EXPECT_TRUE(page_is(hit.pages[0][p], 9, 0, prefix));
    EXPECT_TRUE(page_is(hit.pages[1][p], 9, 1, prefix));
  }
  return hit;
}

TEST(CacheRegistryDisk, WhatWasPublishedIsFoundByALaterHost) {
  DiskHost host;
  {
    const CacheLease lease = host.registry.resolve(kA, host.config, spec_of(1)).value();
    publish(*lease.manager(), 1, 320);
    EXPECT_TRUE(lease.manager()->flush(10).ok());
    EXPECT_TRUE(host.registry.shutdown().empty());
  }
  DiskDirectories disks(host.files, host.clock, {}, false);
  CacheRegistry registry(&disks);
  const CacheLease lease = registry.resolve(kA, host.config, spec_of(1)).value();
  const CacheHit hit = find(*lease.manager(), 1, 320);
  EXPECT_EQ(hit.tokens, 320u);
  EXPECT_EQ(hit.tier, CacheTier::disk);
  EXPECT_EQ(hit.draft_begin, 0u);
  EXPECT_EQ(lease.manager()->stats().disk_hit_tokens, 320u);
  EXPECT_EQ(find(*lease.manager(), 1, 320).tier, CacheTier::ram);
  // Another digest finds nothing there.
  const CacheLease other = registry.resolve(kB, host.config, spec_of(2)).value();
  EXPECT_EQ(find(*other.manager(), 1, 320).tokens, 0u);
}

// A sequence holds the window of its draft only; RAM has the pages before it from earlier chunks of
// the prompt, and they go to disk with the snapshot. So a later prompt may leave the text anywhere.
TEST(CacheRegistryDisk, ADraftsContextIsThereWhereverAPromptLeavesTheText) {
  for (const std::uint32_t sink : {0u, 64u}) {
    DiskHost host;
    StateSpec spec = spec_of(4);
    spec.layout.groups.back().reach = 130;
    spec.layout.groups.back().sink = sink;
    const auto tokens = made_up_tokens(1, 15 * kPageTokens);
    {
      const CacheLease lease = host.registry.resolve(kA, host.config, spec).value();
      CacheManager& manager = *lease.manager();
      for (const std::size_t end : {3u, 6u, 9u, 12u, 15u}) {
        const auto chunk = std::span(tokens).first(end * kPageTokens);
        const PrefixPages pages = made_up_pages(*manager.pages(), 9, chunk);
        ASSERT_TRUE(manager.publish("", chunk, pages, end == 15).ok());
      }
      EXPECT_TRUE(manager.flush(10).ok());
      EXPECT_TRUE(host.registry.shutdown().empty());
    }
    for (const std::uint32_t equal : {960u, 700u, 448u, 130u}) {
      DiskDirectories disks(host.files, host.clock, {}, false);
      CacheRegistry registry(&disks);
      const CacheLease lease = registry.resolve(kA, host.config, spec).value();
      auto prompt = tokens;
      prompt.push_back(1);
      prompt[equal] += 1;
      CacheHit hit = lease.manager()->lookup("", prompt, true).value();
      lease.manager()->restore(hit);
      ASSERT_EQ(hit.tokens, equal / kPageTokens * kPageTokens) << hit.reason;
      EXPECT_EQ(hit.tier, CacheTier::disk);
      EXPECT_EQ(lease.manager()->stats().short_draft_hits, 0u) << hit.reason;
      const std::uint32_t pages = hit.tokens / kPageTokens;
      for (std::uint32_t p = 0; p < pages; ++p) {
        if (p >= sink_pages(sink) && p < first_page_seen(hit.tokens, 130)) continue;
        EXPECT_TRUE(page_is(hit.pages[1][p], 9, 1, std::span(tokens).first((p + 1) * kPageTokens)))
            << p << " of " << pages;
      }
    }
  }
}

// Turns without a draft leave a text without its context, and later ones cannot make up its sink:
// that is said, and does not keep what they have from disk.
TEST(CacheRegistryDisk, AMissingSinkIsSaidAndTheRestIsStored) {
  DiskHost host;
  StateSpec spec = spec_of(5);
  spec.layout.groups.back().reach = 130;
  spec.layout.groups.back().sink = 64;
  const auto tokens = made_up_tokens(1, 10 * kPageTokens);
  {
    const CacheLease lease = host.registry.resolve(kA, host.config, spec).value();
    PrefixPages pages = made_up_pages(*lease.manager()->pages(), 9, tokens);
    ASSERT_FALSE(pages[1][0]);
    ASSERT_TRUE(pages[1][9]);
    ASSERT_TRUE(lease.manager()->publish("", tokens, pages, true).ok());
    EXPECT_TRUE(host.registry.shutdown().empty());
  }
  DiskDirectories disks(host.files, host.clock, {}, false);
  CacheRegistry registry(&disks);
  const CacheLease lease = registry.resolve(kA, host.config, spec).value();
  auto prompt = tokens;
  prompt.push_back(1);
  for (const CacheTier tier : {CacheTier::disk, CacheTier::ram}) {
    CacheHit hit = lease.manager()->lookup("", prompt, true).value();
    lease.manager()->restore(hit);
    EXPECT_EQ(hit.tokens, 10u * kPageTokens);
    EXPECT_EQ(hit.tier, tier);
    EXPECT_EQ(hit.reason, "draft context not stored");
    EXPECT_TRUE(hit.pages[1][7]);
    EXPECT_FALSE(hit.pages[1][0]);
  }
  EXPECT_EQ(lease.manager()->stats().short_draft_hits, 2u);
}

TEST(CacheRegistryDisk, WithRecurrentLayersEveryCheckpointCanBeGoneOnFromLater) {
  DiskHost host;
  StateSpec spec = spec_of(3);
  const GroupLayout draft = spec.layout.groups.back();
  spec.layout.groups.back() = {
      .page_bytes = 4096, .reach = kRecurrentReach, .kind = GroupKind::recurrent};
  spec.layout.groups.push_back({.page_bytes = 512, .reach = kRingReach, .kind = GroupKind::ring});
  spec.layout.groups.push_back(draft);
  const auto tokens = made_up_tokens(1, 330);
  {
    const CacheLease lease = host.registry.resolve(kA, host.config, spec).value();
    PageStore& store = *lease.manager()->pages();
    PrefixPages pages = made_up_pages(store, 9, tokens);
    // One more than the last, after the second page.
    const auto two = std::span(tokens).first(2 * kPageTokens);
    pages[1][1] = std::move(made_up_pages(store, 9, two)[1][1]);
    ASSERT_TRUE(lease.manager()->publish("", tokens, pages, true).ok());
    EXPECT_TRUE(lease.manager()->flush(10).ok());
    EXPECT_TRUE(host.registry.shutdown().empty());
  }
  for (const auto& [equal, usable] : {std::pair{320u, 5u}, {260u, 2u}, {128u, 2u}, {100u, 0u}}) {
    DiskDirectories disks(host.files, host.clock, {}, false);
    CacheRegistry registry(&disks);
    const CacheLease lease = registry.resolve(kA, host.config, spec).value();
    auto prompt = tokens;
    prompt[equal] += 1;
    CacheHit hit = lease.manager()->lookup("", prompt, true).value();
    lease.manager()->restore(hit);
    ASSERT_EQ(hit.tokens, usable * kPageTokens) << equal << ": " << hit.reason;
    if (usable == 0) continue;
    EXPECT_EQ(hit.tier, CacheTier::disk);
    const auto prefix = std::span(prompt).first(hit.tokens);
    EXPECT_TRUE(page_is(hit.pages[0][usable - 1], 9, 0, prefix));
    EXPECT_TRUE(page_is(hit.pages[1][usable - 1], 9, 1, prefix));
    EXPECT_FALSE(hit.pages[2][usable - 1]);
    EXPECT_EQ(lease.manager()->lookup("", prompt, true).value().tier, CacheTier::ram);
  }
}

TEST(CacheRegistryDisk, ALaterHostNamesTheFieldThatChanged) {
  DiskHost host;
  const auto lookup = [&](const CacheIdentity& identity, const StateSpec& spec) {
    DiskDirectories disks(host.files, host.clock, {}, false);
    CacheRegistry registry(&disks);
    const CacheLease lease = registry.resolve(identity, host.config, spec).value();
    return lease.manager()->lookup("", made_up_tokens(1, 321), true).value();
  };
  StateSpec spec = spec_of(1);
  spec.fields.emplace_back("compute", "auto");
  {
    const CacheLease lease = host.registry.resolve(kA, host.config, spec).value();
    EXPECT_EQ(lease.manager()->lookup("", made_up_tokens(1, 321), true).value().reason,
              "nothing is stored");
    publish(*lease.manager(), 1, 320);
    EXPECT_TRUE(host.registry.shutdown().empty());
  }
  StateSpec other = spec_of(2);
  other.fields = spec.fields;
  other.fields.back().second = "fp32";
  EXPECT_EQ(lookup(kA, other).reason, "state digest changed: compute");
  EXPECT_EQ(lookup(kB, other).reason, "nothing is stored") << "the pages are of other models";
  EXPECT_EQ(lookup(kA, spec).tokens, 320u);
  // Somebody else's text in the file is not repeated, and a damaged one is no note.
  const std::string file = host.folder.path() + "/v1/" + spec.target.hex() + "/state.json";
  ASSERT_TRUE(std::filesystem::exists(file));
  for (const char* text :
       {"", "{", "[1]", R"({"models": 3, "fields": []})", R"({"models": "a", "fields": [[1, 2]]})",
        R"({"models": "a", "fields": [["x", "\u001b[2J"]]})"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(lookup(kA, other).reason, "nothing is stored") << text;
  }
  std::ofstream(file) << R"({"models": "a", "fields": [["evil", "1"]]})";
  EXPECT_EQ(lookup(kA, other).reason, "state digest changed: weights");
  EXPECT_EQ(lookup(kA, spec).tokens, 320u) << "pages do not depend on the note";
}

TEST(CacheRegistryDisk, Life1And2_AFailedRetirementStaysAndBlocksUntilARetrySucceeds) {
  DiskHost host(true);
  host.disks.retire_flush_s = 0.05;
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = true;
  host.files.set_hook([&](const FileOperation& operation) {
    if (operation.kind == "write" && !operation.after && operation.thing() == "pages") {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&stuck] { return !stuck; });
    }
    return Fault{};
  });
  CacheLease lease = host.registry.resolve(kA, host.config, spec_of(1)).value();
  const CacheLease b = host.registry.resolve(kB, host.config, spec_of(2)).value();
  const auto old = lease.manager();
  publish(*old, 1, 320);
  CacheConfig changed_config = host.config;
  changed_config.ram_bytes = 1 << 20;
  const auto refused = host.registry.resolve(kA, changed_config, spec_of(1), &lease);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("not written"), std::string::npos);
  EXPECT_FALSE(old->active()) << "retired from the first attempt";
  EXPECT_TRUE(lease) << "a refused call takes nothing";
  EXPECT_FALSE(host.registry.shutdown(kA).ok());
  bool there = false;
  for (const auto& entry : host.registry.entries()) {
    if (entry.identity == kA) there = entry.state == SlotState::failed && entry.manager == old;
  }
  EXPECT_TRUE(there) << "the failed manager stays visible";
  EXPECT_TRUE(b.manager()->active());
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stuck = false;
  }
  changed.notify_all();
  host.disks.retire_flush_s = 20;
  ASSERT_TRUE(old->flush(20).ok());
  lease = host.registry.resolve(kA, changed_config, spec_of(1), &lease).value();
  EXPECT_NE(lease.manager(), old);
  EXPECT_EQ(find(*lease.manager(), 1, 320).tokens, 320u) << "adopted";
}

TEST(CacheRegistryDisk, Life4_AReplacementCanWriteAtOnce) {
  DiskHost host;
  CacheLease lease = host.registry.resolve(kA, host.config, spec_of(1)).value();
  EXPECT_TRUE(lease.manager()->disk()->writable());
  for (std::size_t i = 1; i < 5; ++i) {
    CacheConfig changed = host.config;
    changed.ram_bytes = (1 << 20) + i;
    lease = host.registry.resolve(kA, changed, spec_of(1), &lease).value();
    EXPECT_TRUE(lease.manager()->disk()->writable());
  }
}

TEST(CacheRegistryDisk, Life6_ADiskThatFailsLeavesRamAndIsTriedAgain) {
  DiskHost host;
  bool failing = true;
  host.files.set_hook([&failing](const FileOperation&) {
    return failing ? Fault{.error = EIO, .partial = false} : Fault{};
  });
  const auto resolved = host.registry.resolve(kA, host.config, spec_of(1));
  ASSERT_TRUE(resolved.ok()) << resolved.status().message();
  CacheManager& manager = *resolved.value().manager();
  publish(manager, 1, 320);
  EXPECT_EQ(find(manager, 1, 320).tier, CacheTier::ram);
  EXPECT_FALSE(host.log.lines.empty()) << "said";
  failing = false;
  for (int i = 0; i < 20; ++i) {
    host.clock.advance(10);
    manager.disk()->directory().drive();
  }
  publish(manager, 1, 384);
  EXPECT_TRUE(manager.flush(10).ok());
  while (manager.evict(false) > 0) {
  }
  EXPECT_EQ(find(manager, 1, 384).tier, CacheTier::disk);
}

TEST(CacheRegistryDisk, SpellingsOfAPathAreOneDirectory) {
  DiskHost host;
  const std::string path = host.folder.path();
  const std::string link = path + "-link";
  std::filesystem::create_directory_symlink(path, link);
  CacheConfig other = host.config;
  const CacheLease a = host.registry.resolve(kA, host.config, spec_of(1)).value();
  std::vector<CacheLease> leases;
  std::uint8_t weights = 2;
  for (const std::string& spelled : {path + "/", path + "/../cache", link}) {
    other.disk_directory = spelled;
    const CacheIdentity identity{.target = "b", .draft = "b-draft", .label = spelled};
    leases.push_back(host.registry.resolve(identity, other, spec_of(weights++)).value());
    publish(*leases.back().manager(), 1, 320);
    EXPECT_TRUE(leases.back().manager()->flush(10).ok()) << spelled;
  }
  // The same section too: what the one stores, the other finds.
  const CacheIdentity again{.target = "a", .draft = "a-draft", .label = "again"};
  const CacheLease b = host.registry.resolve(again, other, spec_of(1)).value();
  publish(*a.manager(), 7, 320);
  EXPECT_TRUE(a.manager()->flush(10).ok());
  EXPECT_EQ(find(*b.manager(), 7, 320).tokens, 320u);
  std::filesystem::remove(link);
}

TEST(CacheRegistryDisk, OtherLimitsTakeEffectWhileTheFolderIsInUse) {
  DiskHost host;
  const CacheLease other = host.registry.resolve(kB, host.config, spec_of(2)).value();
  std::uint64_t held = 0;
  {
    const CacheLease lease = host.registry.resolve(kA, host.config, spec_of(1)).value();
    for (std::uint32_t seed = 0; seed < 40; ++seed) publish(*lease.manager(), seed, 320);
    EXPECT_TRUE(lease.manager()->flush(10).ok());
    held = host.disks.open(host.config).value()->usage().bytes;
  }
  CacheConfig smaller = host.config;
  smaller.disk_bytes = held / 2;
  const CacheLease lease = host.registry.resolve(kA, smaller, spec_of(1)).value();
  for (std::uint32_t seed = 100; seed < 140; ++seed) publish(*lease.manager(), seed, 320);
  EXPECT_TRUE(lease.manager()->flush(10).ok());
  const DiskDirectory::Usage usage = host.disks.open(smaller).value()->usage();
  EXPECT_EQ(usage.budget_bytes, held / 2);
  EXPECT_LE(usage.bytes, held / 2);
  EXPECT_EQ(find(*lease.manager(), 139, 320).tokens, 320u);
}

TEST(CacheRegistryDisk, ARefusedConfigurationLeavesTheManagerAtWork) {
  DiskHost host;
  CacheLease lease = host.registry.resolve(kA, host.config, spec_of(1)).value();
  const auto manager = lease.manager();
  publish(*manager, 1, 320);
  const std::string foreign = host.folder.path() + "-foreign";
  std::filesystem::create_directories(foreign);
  std::ofstream(foreign + "/letter") << "mine";
  CacheConfig wrong = host.config;
  wrong.disk_directory = foreign;
  EXPECT_EQ(host.registry.resolve(kA, wrong, spec_of(1), &lease).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(host.registry.find(kA), manager);
  EXPECT_EQ(find(*manager, 1, 320).tokens, 320u);
  EXPECT_EQ(host.registry.entries()[0].state, SlotState::active);
  EXPECT_EQ(host.registry.resolve(kA, host.config, spec_of(1), &lease).value().manager(), manager);
}

TEST(CacheRegistryDisk, Life6_ASomebodyElsesDirectoryIsAnError) {
  DiskHost host;
  std::filesystem::create_directories(host.folder.path());
  std::filesystem::permissions(host.folder.path(), std::filesystem::perms::all);
  const auto refused = host.registry.resolve(kA, host.config, spec_of(1));
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(host.registry.entries().empty()) << "nothing half made";
}

TEST(CacheRegistryDisk, Gap4_AnotherIdentityDoesNotWaitForARetirement) {
  DiskHost host(true);
  std::mutex mutex;
  std::condition_variable changed;
  bool stuck = true;
  bool waiting = false;
  host.files.set_hook([&](const FileOperation& operation) {
    if (operation.kind == "write" && !operation.after && operation.thing() == "pages") {
      std::unique_lock<std::mutex> lock(mutex);
      waiting = true;
      changed.notify_all();
      changed.wait(lock, [&stuck] { return !stuck; });
    }
    return Fault{};
  });
  CacheLease a = host.registry.resolve(kA, host.config, spec_of(1)).value();
  publish(*a.manager(), 1, 320);
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&waiting] { return waiting; });
  }
  std::thread retiring([&host] { EXPECT_TRUE(host.registry.shutdown(kA).ok()); });
  // Works while the other one waits for its disk, and so does everything that looks only.
  CacheConfig ram = host.config;
  ram.disk_directory.clear();
  const CacheLease b = host.registry.resolve(kB, ram, spec_of(2)).value();
  EXPECT_EQ(host.registry.current(), b.manager());
  publish(*b.manager(), 2, 320);
  EXPECT_EQ(find(*b.manager(), 2, 320).tokens, 320u);
  (void)host.registry.entries();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stuck = false;
  }
  changed.notify_all();
  retiring.join();
}

TEST(CacheRegistryDisk, Gap5_EveryIdentityWritesToASharedDirectory) {
  DiskHost host;
  CacheIdentity twin = kA;
  twin.label = "twin";  // the same digest
  const CacheLease a = host.registry.resolve(kA, host.config, spec_of(1)).value();
  const CacheLease a2 = host.registry.resolve(twin, host.config, spec_of(1)).value();
  const CacheLease b = host.registry.resolve(kB, host.config, spec_of(2)).value();
  EXPECT_TRUE(a.manager()->disk()->writable());
  EXPECT_TRUE(a2.manager()->disk()->writable());
  EXPECT_TRUE(b.manager()->disk()->writable());
  publish(*a.manager(), 1, 320);
  EXPECT_TRUE(a.manager()->flush(10).ok());
  EXPECT_EQ(find(*a2.manager(), 1, 320).tier, CacheTier::disk) << "one digest, one set of files";

  // Another host of this process comes second to the digests, and writes once the first has gone.
  DiskDirectories disks(host.files, host.clock, {}, false);
  CacheRegistry second(&disks);
  const CacheLease later = second.resolve(kA, host.config, spec_of(1)).value();
  EXPECT_FALSE(later.manager()->disk()->writable());
  EXPECT_EQ(find(*later.manager(), 1, 320).tier, CacheTier::disk) << "it reads meanwhile";
  EXPECT_TRUE(later.manager()->active());
}

}  // namespace
}  // namespace drafthouse
