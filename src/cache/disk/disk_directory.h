#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "cache/disk/disk_options.h"
#include "cache/disk/file_system.h"
#include "drafthouse/status.h"

namespace drafthouse {

class DiskCore;
class SectionCore;

// A directory of stored pages, of any number of models; other processes may use it too. One per
// directory and host. Keeps the directory within its budget, and has the thread that writes.
// Thread-safe.
class DiskDirectory {
 public:
  // `files` and `clock` must outlive it. invalid_argument, unsupported: the directory is somebody
  // else's, open to others, or not a cache directory. What may work later (no space, vanished, read
  // only) is not an error: the directory is tried again and again.
  static Result<std::shared_ptr<DiskDirectory>> open(FileSystem& files, const Clock& clock,
                                                     DiskOptions options, DiskLogFn log);
  // Waits for the page that is just being written; drops what still waits. flush() before.
  ~DiskDirectory();
  DiskDirectory(const DiskDirectory&) = delete;
  DiskDirectory& operator=(const DiskDirectory&) = delete;

  // While requests run, of any manager, writing takes a fifth of its thread's time at most.
  void begin_request();
  void end_request();
  // Until everything offered so far is stored or dropped; at full speed. False: the time was not
  // enough.
  bool flush(double timeout_s);
  // Without a thread (DiskOptions::threaded): does what is due by the clock, and what waits.
  void drive();

  struct Usage {
    std::uint64_t bytes = 0;         // below the directory, by its record
    std::uint64_t budget_bytes = 0;  // 0: no limit
    std::size_t queued_bytes = 0;    // pages that wait to be written
    std::string off = {};            // why the directory is not used now; empty: it is
  };
  Usage usage() const;
  DiskCounters counters() const;
  // Takes effect with the next write; less than is held goes as new state is stored.
  void set_limits(const DiskLimits& limits);

  DiskCore& core() { return *core_; }  // for sections

 private:
  explicit DiskDirectory(std::shared_ptr<DiskCore> core);

  std::shared_ptr<DiskCore> core_;
  std::thread writer_;
};

}  // namespace drafthouse
