#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "cache/disk/disk_directory.h"
#include "cache/disk/disk_options.h"
#include "cache/disk/file_system.h"
#include "drafthouse/cache_config.h"

namespace drafthouse {

// Why no cache can be made of these settings; OK when one can, as far as they tell.
Status check_settings(const CacheConfig& config);

// The disk tiers of a host: managers that name the same folder share one directory object, so that
// all of them can write there and its budget is kept once. Thread-safe.
class DiskDirectories {
 public:
  // All must outlive it. `log` may be empty.
  DiskDirectories(FileSystem& files, const Clock& clock, DiskLogFn log, bool threaded = true);
  // The machine's files and clock.
  explicit DiskDirectories(DiskLogFn log = {});

  // The directory that a configuration names. Where somebody uses it already, these limits are the
  // directory's from now on, for all. Two spellings of a path, also over symbolic links, are one
  // directory. See DiskDirectory::open().
  Result<std::shared_ptr<DiskDirectory>> open(const CacheConfig& config);
  // Whether open() would refuse what the configuration names for good: it is nobody's cache
  // directory.
  Status check(const CacheConfig& config);

  // How long a manager's retirement waits for its writes before it counts as failed. Set before
  // use.
  double retire_flush_s = 20;

 private:
  FileSystem& files_;
  const Clock& clock_;
  const DiskLogFn log_;
  const bool threaded_;
  std::mutex lock_;
  std::map<std::string, std::weak_ptr<DiskDirectory>> open_;  // by the path without links
};

}  // namespace drafthouse
