#pragma once

// A cache directory for tests: a folder that goes with the test, a clock that stands still, small
// pages whose bytes are a function of digest, group and tokens, so that a wrong byte is seen.

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_section.h"
#include "cache/disk/faulty_file_system.h"
#include "cache/page_pool.h"

namespace drafthouse::test_disk {

class FakeClock final : public Clock {
 public:
  double now_s() const override { return now_.load(); }
  void advance(double seconds) { now_ = now_.load() + seconds; }

 private:
  std::atomic<double> now_{1000};
};

class Folder {
 public:
  Folder() {
    // In memory where there is such a place: bringing files to disk is what takes the time here.
    const std::filesystem::path memory = "/dev/shm";
    const bool in_memory = access(memory.c_str(), W_OK) == 0;
    std::string name =
        ((in_memory ? memory : std::filesystem::temp_directory_path()) / "dh-disk-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_ + "/cache"; }

 private:
  std::string path_;
};

inline StateDigest digest(std::uint8_t number) {
  StateDigest made;
  made.bytes.fill(number);
  return made;
}

// A function of digest, group and all tokens up to the page's end.
inline void fill_page(const StateDigest& of, std::uint32_t group,
                      std::span<const std::uint32_t> prefix, std::span<std::byte> into) {
  std::uint64_t state = 1469598103934665603ull + of.bytes[0] * 31ull + group * 7ull;
  for (const std::uint32_t token : prefix) state = (state ^ token) * 1099511628211ull;
  for (std::byte& byte : into) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
}

// Full attention with pages of 1,000 bytes; a window of 128 positions with pages of 512.
inline StateLayout layout_full() { return {{{1000, 0, false}}}; }
inline StateLayout layout_windowed() { return {{{1000, 0, false}, {512, 128, false}}}; }

inline std::vector<std::uint32_t> tokens(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> made(count);
  std::uint64_t state = seed;
  for (std::uint32_t& token : made) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    token = static_cast<std::uint32_t>(state >> 33) % 50000;
  }
  return made;
}

// A text of whole pages; one page is a manifest and a file of pages, of one block each.
inline std::vector<std::uint32_t> chat(std::uint32_t number, std::size_t pages = 1) {
  return tokens(number, pages * kPageTokens);
}

inline DiskSnapshot snapshot(const StateDigest& of, const StateLayout& layout,
                             std::vector<std::uint32_t> tokens, std::string salt = {}) {
  static const auto ledger = std::make_shared<MemoryLedger>();
  DiskSnapshot made;
  made.salt = std::move(salt);
  const auto pages = static_cast<std::uint32_t>(tokens.size() / kPageTokens);
  for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
    const GroupLayout& group = layout.groups[g];
    std::vector<PageRef>& row = made.pages.emplace_back(pages);
    if (group.page_bytes == 0) continue;
    const auto pool = PagePool::create(group.page_bytes, MemoryTag::kv_pages, ledger);
    for (std::uint32_t p = first_page_seen(pages * kPageTokens, group.reach); p < pages; ++p) {
      row[p] = pool->take().value();
      fill_page(of, g, std::span(tokens).first(std::size_t{p + 1} * kPageTokens),
                std::span(row[p].data(), group.page_bytes));
    }
  }
  made.tokens = std::move(tokens);
  return made;
}

// Pages that can be read back with the right bytes, from the beginning; a wrong byte gives -1.
inline int pages_right(DiskSection& section, const StateDigest& of,
                       const std::vector<std::uint32_t>& tokens, const std::string& salt = {}) {
  const DiskMatch match = section.find(salt, tokens);
  const std::vector<GroupLayout>& groups = section.layout().groups;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const std::uint32_t first = first_page_seen(match.pages() * kPageTokens, groups[g].reach);
    for (std::uint32_t p = first; p < match.pages(); ++p) {
      std::vector<std::byte> read(groups[g].page_bytes);
      std::vector<std::byte> expected(groups[g].page_bytes);
      const Status status = section.read(match, g, p, read);
      if (!status.ok()) return 0;
      fill_page(of, g, std::span(tokens).first(std::size_t{p + 1} * kPageTokens), expected);
      if (read != expected) return -1;
    }
  }
  return static_cast<int>(match.pages());
}

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;

  DiskLogFn fn() {
    return [this](std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex);
      lines.emplace_back(line);
    };
  }
};

// Directories of one path, each like another process: locks are between open files.
struct Bench {
  Folder folder;
  FaultyFileSystem files{posix_file_system()};
  FakeClock clock;
  Log log;
  DiskOptions options;

  Bench() {
    options.directory = folder.path();
    options.threaded = false;
  }
  std::shared_ptr<DiskDirectory> open() {
    Result<std::shared_ptr<DiskDirectory>> opened =
        DiskDirectory::open(files, clock, options, log.fn());
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  static std::shared_ptr<DiskSection> section(const std::shared_ptr<DiskDirectory>& directory,
                                              std::uint8_t number, const StateLayout& layout) {
    return DiskSection::open(directory, digest(number), layout).value();
  }
  // Offers and stores; whether all of it was.
  static bool store(const std::shared_ptr<DiskDirectory>& directory, DiskSection& section,
                    DiskSnapshot snapshot) {
    bool stored = false;
    snapshot.done = [&stored](bool all) { stored = all; };
    if (!section.offer(std::move(snapshot))) return false;
    directory->flush(60);
    return stored;
  }
};

// Bytes of all files in the directory, by looking at each.
inline std::uint64_t charged(const Bench& bench) {
  std::unique_ptr<DiskFolder> root;
  std::uint64_t bytes = 0;
  if (posix_file_system().open_root(bench.folder.path(), false, root) != 0) return 0;
  return charged_below(*root, bytes) == 0 ? bytes : 0;
}

}  // namespace drafthouse::test_disk
