#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace drafthouse {

// The settings of one pair's prefix cache.
struct CacheConfig {
  bool enabled = true;
  // Bytes of pages that the RAM tier may hold; 0: as many as the host's memory budget leaves.
  std::size_t ram_bytes = 0;
  // Bytes of it that pressure from other models never takes.
  std::size_t ram_floor_bytes = std::size_t{64} << 20;
  // Folder of the disk tier, shared by any number of models and processes; empty: no disk tier.
  std::string disk_directory = {};
  // Bytes of everything below that folder; 0: no limit.
  std::uint64_t disk_bytes = std::uint64_t{20} << 30;
  // Bytes that stay free on its file system.
  std::uint64_t disk_free_bytes = std::uint64_t{1} << 30;
  // Bytes of pages that wait to be written; what does not fit is dropped and counted.
  std::size_t disk_queue_bytes = std::size_t{512} << 20;
  // Positions between the snapshots that a long generation leaves; at least 64.
  std::uint32_t snapshot_tokens = 1024;

  // For diagnostics only: a manager is not replaced when it changes.
  bool trace = false;

  // Whether a manager made for the one serves the other.
  bool same_as(const CacheConfig& other) const {
    CacheConfig mine = *this;
    mine.trace = other.trace;
    return mine == other;
  }
  friend bool operator==(const CacheConfig&, const CacheConfig&) = default;
};

}  // namespace drafthouse
