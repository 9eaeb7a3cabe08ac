#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/timed_lock.h"
#include "cache/disk/disk_meter.h"
#include "cache/disk/file_system.h"
#include "cache/disk/lock_file.h"

namespace drafthouse {

// How many bytes a cache directory holds, of all models, versions and processes: one record in the
// file `usage`, read and changed under the lock file `lock`. Whoever makes or removes files does it
// under this lock too, files at their full size from the start, so that at every moment the record
// is the truth. A process that dies in between leaves the record marked as open, and the next one
// counts the directory anew. Thread-safe.
class DirectoryUsage {
 public:
  // `root` must outlive this.
  DirectoryUsage(FileSystem& files, const Clock& clock, DiskFolder& root, DiskMeter& meter,
                 double lock_wait_s);

  // The lock, held. Give it back soon: every other writer of the directory waits.
  class Change {
   public:
    Change() = default;
    ~Change() { finish(); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

    std::uint64_t bytes() const { return bytes_; }
    // Marks the record as open; before the first file is made or removed.
    Errno begin();
    void add(std::uint64_t bytes) { bytes_ += bytes; }
    void subtract(std::uint64_t bytes) { bytes_ -= bytes < bytes_ ? bytes : bytes_; }
    // Counts the directory anew, unless this process did so not long ago.
    void recount_if_old();
    // Writes the record and lets the lock go.
    void finish();

   private:
    friend class DirectoryUsage;
    DirectoryUsage* usage_ = nullptr;
    std::uint64_t bytes_ = 0;
    bool open_ = false;
    std::unique_lock<TimedLock> here_;
  };

  // Waits at most `lock_wait_s`: EBUSY then. ENOLCK: this file system has no locks.
  [[nodiscard]] Errno lock(Change& change);
  // What the record says, without the lock; 0 when it cannot be read.
  std::uint64_t bytes_about();

 private:
  Errno take_lock();
  Errno read_or_count(Change& change);
  Errno write_record(std::uint64_t bytes, bool open);
  void recount(Change& change);

  FileSystem& files_;
  const Clock& clock_;
  DiskFolder& root_;
  DiskMeter& meter_;
  std::chrono::duration<double> lock_wait_;
  TimedLock mutex_;  // threads of this process; the lock file is one for all of them
  LockFile lock_;
  std::unique_ptr<DiskFile> record_;
  std::uint64_t boot_ = 0;
  double counted_s_ = -1e300;
};

// Bytes charged for all files below, links not followed. The first error, if any: what could not be
// read counts nothing then; what is removed meanwhile is no error.
[[nodiscard]] Errno charged_below(DiskFolder& folder, std::uint64_t& bytes);

}  // namespace drafthouse
