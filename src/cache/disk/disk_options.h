#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace drafthouse {

// Takes one line for people, without a newline. Called without locks, on any thread.
using DiskLogFn = std::function<void(std::string_view line)>;

// What may change while a directory is in use.
struct DiskLimits {
  std::uint64_t budget_bytes = 0;       // over everything below the directory; 0: no limit
  std::uint64_t free_floor_bytes = 0;   // space that stays free on the file system
  std::size_t queue_bytes = 256 << 20;  // pages waiting to be written; more are dropped and counted
  friend bool operator==(const DiskLimits&, const DiskLimits&) = default;
};

struct DiskOptions : DiskLimits {
  std::string directory = {};        // made when missing, mode 0700
  std::size_t run_bytes = 32 << 20;  // pages per unit of writing and eviction, at least one page
  double lock_wait_s = 5;            // for the directory, which others change for moments only
  double lock_retry_s = 3;           // how often a lock that others hold is asked for again
  double error_retry_s = 30;         // how long nothing is written after a write failed
  bool threaded = true;              // false: work happens in drive() and flush() only
};

// What the tier did since it was opened. Bytes are of pages.
struct DiskCounters {
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t read_errors = 0;  // the system refused
  std::uint64_t vanished = 0;     // a file was gone when it was wanted
  std::uint64_t snapshots_stored = 0;
  std::uint64_t writes = 0;  // pages
  std::uint64_t write_bytes = 0;
  std::uint64_t write_errors = 0;  // the system refused; the run is not stored
  std::uint64_t drops_queue = 0;   // snapshots not stored whole, by cause
  std::uint64_t drops_budget = 0;
  std::uint64_t drops_free_floor = 0;
  std::uint64_t drops_read_only = 0;   // another process holds the digest, or there is no lock
  std::uint64_t drops_suspended = 0;   // after an error, until the next try
  std::uint64_t drops_lock = 0;        // the directory's lock was not to be had in time
  std::uint64_t drops_incomplete = 0;  // offered without a page that it needs
  std::uint64_t drops_cleared = 0;
  std::uint64_t quarantined = 0;  // damaged or foreign files set aside
  std::uint64_t evictions = 0;    // runs
  std::uint64_t evicted_bytes = 0;
  std::uint64_t leftovers_removed = 0;  // files of writers that died
  std::uint64_t takeovers = 0;          // locks taken after another holder had gone
  std::uint64_t scans = 0;              // of the whole directory, to count its bytes anew
};

}  // namespace drafthouse
