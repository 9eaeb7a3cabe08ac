#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "cache/disk/run_record.h"

namespace drafthouse {

// A run that is complete on disk. Shared by the index and by the matches that use it. The record
// never changes; the marks may be changed by any thread.
struct StoredRun {
  StoredRun(RunRecord its_record, std::int64_t used_ns)
      : record(std::move(its_record)), last_use_ns(used_ns), charged(charged_bytes(record)) {}

  const RunRecord record;
  std::atomic<std::int64_t> last_use_ns;
  const std::uint64_t charged;           // bytes of its files
  std::atomic<std::uint32_t> holds{0};   // matches that may still read it
  std::atomic<bool> checked{false};      // the manifest was compared with the record
  std::atomic<bool> use_pending{false};  // the last use is not yet on disk
};

}  // namespace drafthouse
