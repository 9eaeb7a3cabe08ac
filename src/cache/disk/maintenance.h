#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/disk/file_system.h"
#include "cache/state_digest.h"
#include "drafthouse/status.h"

namespace drafthouse {

// What a command line does with a cache directory, also while other processes use it. Only folders
// with our marker are touched, and in them only names of our format; a digest that somebody writes
// is left alone and listed as busy. invalid_argument, not_found: there is no cache directory of
// ours.

struct DigestSummary {
  std::string digest = {};
  std::string models = {};      // "target" or "target + draft"; empty: unknown
  StateFields fields = {};      // what the digest is made of, as far as known
  std::uint64_t tenants = 0;    // salts
  std::uint64_t snapshots = 0;  // runs that nothing hangs from
  std::uint64_t runs = 0;
  std::uint64_t pages = 0;   // of all layer groups
  std::uint64_t tokens = 0;  // that can be found, each prefix once
  std::uint64_t bytes = 0;
  std::int64_t last_use_ns = 0;  // since the epoch; 0: never
  bool locked = false;           // another process writes it now
};

struct DirectorySummary {
  std::uint64_t bytes = 0;        // everything below the directory
  std::uint64_t other_bytes = 0;  // of it: other versions, quarantine, logs, unknown files
  std::vector<DigestSummary> digests = {};
};
Result<DirectorySummary> list_disk_cache(FileSystem& files, const std::string& directory);

struct VerifyReport {
  std::uint64_t runs = 0;
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> damaged = {};  // one line each
  std::uint64_t set_aside = 0;            // runs
  std::vector<std::string> busy = {};     // digests whose damage could not be set aside
};
// Reads every page of one digest or of all and checks it.
Result<VerifyReport> verify_disk_cache(FileSystem& files, const std::string& directory,
                                       const std::optional<std::string>& digest, bool set_aside);

struct PruneReport {
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
  std::uint64_t runs = 0;  // removed, or with `dry_run` what would be
  struct Part {
    std::string digest = {};
    std::uint64_t runs = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Part> parts = {};
  std::vector<std::string> busy = {};
};
// Removes what was used longest ago until the directory holds at most `bytes_max`.
Result<PruneReport> prune_disk_cache(FileSystem& files, const std::string& directory,
                                     std::uint64_t bytes_max, bool dry_run);

// Removes one digest, or all.
Result<PruneReport> clear_disk_cache(FileSystem& files, const std::string& directory,
                                     const std::optional<std::string>& digest);

}  // namespace drafthouse
