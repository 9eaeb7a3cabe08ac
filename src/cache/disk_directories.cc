#include "cache/disk_directories.h"

#include <utility>

namespace drafthouse {

DiskDirectories::DiskDirectories(FileSystem& files, const Clock& clock, DiskLogFn log, bool threaded)
    : files_(files), clock_(clock), log_(std::move(log)), threaded_(threaded) {}

DiskDirectories::DiskDirectories(DiskLogFn log)
    : DiskDirectories(posix_file_system(), system_clock(), std::move(log)) {}

Result<std::shared_ptr<DiskDirectory>> DiskDirectories::open(const CacheConfig& config) {
  const std::lock_guard<std::mutex> lock(lock_);
  std::weak_ptr<DiskDirectory>& place = open_[config.disk_directory];
  if (std::shared_ptr<DiskDirectory> there = place.lock()) return there;
  DiskOptions options;
  options.directory = config.disk_directory;
  options.budget_bytes = config.disk_bytes;
  options.free_floor_bytes = config.disk_free_bytes;
  options.queue_bytes = config.disk_queue_bytes;
  options.threaded = threaded_;
  Result<std::shared_ptr<DiskDirectory>> made = DiskDirectory::open(files_, clock_, options, log_);
  if (made.ok()) place = made.value();
  return made;
}

}  // namespace drafthouse
