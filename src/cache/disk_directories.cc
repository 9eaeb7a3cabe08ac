#include "cache/disk_directories.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "cache/state_layout.h"

namespace drafthouse {
namespace {

// The one name of a folder that may not be there yet.
std::string settled(const std::string& path) {
  std::error_code error;
  // Absolute: a program may change its working directory later.
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  const std::filesystem::path found = std::filesystem::weakly_canonical(whole, error);
  return error ? path : found.string();
}

}  // namespace

Status check_settings(const CacheConfig& config) {
  if (!config.enabled || config.snapshot_tokens >= kPageTokens) return {};
  return {
      Code::invalid_argument,
      fmt::format("snapshot_tokens is {}: snapshots are at pages of {} tokens, so it must be at "
                  "least that; 1024 is the default",
                  config.snapshot_tokens, kPageTokens)};
}

DiskDirectories::DiskDirectories(FileSystem& files, const Clock& clock, DiskLogFn log,
                                 bool threaded)
    : files_(files), clock_(clock), log_(std::move(log)), threaded_(threaded) {}

DiskDirectories::DiskDirectories(DiskLogFn log)
    : DiskDirectories(posix_file_system(), system_clock(), std::move(log)) {}

Result<std::shared_ptr<DiskDirectory>> DiskDirectories::open(const CacheConfig& config) {
  const std::lock_guard<std::mutex> lock(lock_);
  const std::string path = settled(config.disk_directory);
  const DiskLimits limits{.budget_bytes = config.disk_bytes,
                          .free_floor_bytes = config.disk_free_bytes,
                          .queue_bytes = config.disk_queue_bytes};
  std::weak_ptr<DiskDirectory>& place = open_[path];
  if (std::shared_ptr<DiskDirectory> there = place.lock()) {
    there->set_limits(limits);
    return there;
  }
  DiskOptions options;
  options.directory = path;
  static_cast<DiskLimits&>(options) = limits;
  options.threaded = threaded_;
  Result<std::shared_ptr<DiskDirectory>> made = DiskDirectory::open(files_, clock_, options, log_);
  if (made.ok()) place = made.value();
  return made;
}

Status DiskDirectories::check(const CacheConfig& config) {
  if (!config.enabled || config.disk_directory.empty()) return {};
  const Result<std::shared_ptr<DiskDirectory>> there = open(config);
  return there.ok() ? Status() : there.status();
}

}  // namespace drafthouse
