#pragma once

#include <cstdint>

namespace drafthouse {

// What a pair's prefix cache did since its identity was first resolved. Counters continue when its
// manager is replaced.
struct CacheStats {
  std::uint64_t lookups = 0;
  std::uint64_t hits = 0;  // lookups that gave at least a page
  std::uint64_t ram_hit_tokens = 0;
  std::uint64_t disk_hit_tokens = 0;
  std::uint64_t prompt_tokens = 0;     // of all lookups
  std::uint64_t short_draft_hits = 0;  // hits whose draft context begins later than the target's
  std::uint64_t published_pages = 0;
  std::uint64_t evicted_own = 0;       // pages that left for the manager's own limit or requests
  std::uint64_t evicted_pressure = 0;  // pages that left for other models
  std::uint64_t refused_full = 0;      // pages that did not fit although all was evicted
  std::uint64_t restore_failures = 0;  // restorations from disk that ended early
  std::uint64_t refused_retired = 0;   // publications after retirement
  std::uint64_t rebuilds = 0;          // managers that replaced one with another configuration
};

}  // namespace drafthouse
