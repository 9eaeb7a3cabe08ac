#include "cache/disk/directory_usage.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cache/disk/hashing.h"
#include "cache/disk/names.h"
#include "cache/disk/run_record.h"

namespace drafthouse {
namespace {

constexpr std::chrono::milliseconds kLockPause{2};
constexpr double kRecountSeconds = 60;
constexpr int kFolderDepthMax = 8;

// Numbers of the machine's byte order: a directory is not carried from one machine to another.
struct Record {
  std::uint32_t magic = 0x53554844;  // DHUS
  std::uint32_t version = 1;
  std::uint64_t bytes = 0;
  std::uint64_t boot = 0;
  std::uint64_t open = 0;  // 1: somebody is changing the directory, or died doing it
  std::uint64_t checksum = 0;
};
static_assert(sizeof(Record) == 40);

std::uint64_t checksum_of(const Record& record) {
  return checksum(std::as_bytes(std::span(&record, 1)).first(offsetof(Record, checksum)));
}

Errno add_below(DiskFolder& folder, int depth, std::uint64_t& bytes) {
  std::vector<FolderEntry> entries;
  Errno first = folder.list(entries);
  for (const FolderEntry& entry : entries) {
    Errno error = 0;
    if (entry.is_folder && depth < kFolderDepthMax) {
      std::unique_ptr<DiskFolder> below;
      error = folder.open_folder(entry.name, false, below);
      if (error == 0) error = add_below(*below, depth + 1, bytes);
    } else if (entry.is_file) {
      FileStat stat;
      error = folder.stat_entry(entry.name, stat);
      if (error == 0) bytes += charged_bytes(stat.bytes);
    }
    if (first == 0 && error != ENOENT) first = error;
  }
  return first;
}

}  // namespace

Errno charged_below(DiskFolder& folder, std::uint64_t& bytes) {
  bytes = 0;
  return add_below(folder, 0, bytes);
}

DirectoryUsage::DirectoryUsage(FileSystem& files, const Clock& clock, DiskFolder& root,
                               DiskMeter& meter, double lock_wait_s)
    : files_(files), clock_(clock), root_(root), meter_(meter), lock_wait_(lock_wait_s) {
  const std::string boot = files.boot_id();
  boot_ = checksum(std::as_bytes(std::span(boot)));
}

Errno DirectoryUsage::lock(Change& change) {
  change.here_ = std::unique_lock<TimedLock>(mutex_, std::defer_lock);
  if (!change.here_.try_lock_for(lock_wait_)) return EBUSY;
  Errno error = take_lock();
  if (error == 0) error = read_or_count(change);
  if (error != 0) {
    lock_.release();
    change.here_.unlock();
    return error;
  }
  change.usage_ = this;
  return 0;
}

Errno DirectoryUsage::take_lock() {
  // A lock that is asked for, not waited for: its holder may have been stopped.
  const auto deadline = std::chrono::steady_clock::now() + lock_wait_;
  for (;;) {
    Errno error = 0;
    switch (lock_.try_take(root_, kLockName, error)) {
      case LockFile::Outcome::held: return 0;
      case LockFile::Outcome::unsupported: return ENOLCK;
      case LockFile::Outcome::failed: return error;
      case LockFile::Outcome::busy: break;
    }
    if (std::chrono::steady_clock::now() >= deadline) return EBUSY;
    std::this_thread::sleep_for(kLockPause);
  }
}

Errno DirectoryUsage::read_or_count(Change& change) {
  FileStat named;
  FileStat ours;
  if (record_ != nullptr && (root_.stat_entry(kUsageName, named) != 0 || record_->stat(ours) != 0 ||
                             named.inode != ours.inode)) {
    record_.reset();
  }
  if (record_ == nullptr) {
    const Errno error = root_.open_file(kUsageName, OpenMode::open_or_create, record_);
    if (error != 0) return error;
  }
  Record record;
  std::size_t got = 0;
  const Errno error = record_->read(0, std::as_writable_bytes(std::span(&record, 1)), got);
  if (error != 0) return error;
  const Record fresh;
  const bool whole = got == sizeof record && record.magic == fresh.magic &&
                     record.version == fresh.version && record.checksum == checksum_of(record);
  change.bytes_ = whole ? record.bytes : 0;
  if (!whole || record.open != 0 || record.boot != boot_) {
    // So that the record itself is among what is counted.
    const Errno failed = write_record(0, true);
    if (failed != 0) return failed;
    change.open_ = true;
    recount(change);
  }
  return 0;
}

Errno DirectoryUsage::write_record(std::uint64_t bytes, bool open) {
  Record record;
  record.bytes = bytes;
  record.boot = boot_;
  record.open = open ? 1 : 0;
  record.checksum = checksum_of(record);
  return record_->write(0, std::as_bytes(std::span(&record, 1)));
}

void DirectoryUsage::recount(Change& change) {
  std::uint64_t found = 0;
  const Errno error = charged_below(root_, found);
  // What was known stays the better guess where a part could not be read.
  change.bytes_ = error == 0 ? found : std::max(found, change.bytes_);
  counted_s_ = clock_.now_s();
  meter_.add(&DiskCounters::scans);
}

std::uint64_t DirectoryUsage::bytes_about() {
  std::unique_ptr<DiskFile> file;
  if (root_.open_file(kUsageName, OpenMode::read, file) != 0) return 0;
  Record record;
  std::size_t got = 0;
  if (file->read(0, std::as_writable_bytes(std::span(&record, 1)), got) != 0 ||
      got != sizeof record || record.checksum != checksum_of(record)) {
    return 0;
  }
  return record.bytes;
}

Errno DirectoryUsage::Change::begin() {
  if (open_) return 0;
  const Errno error = usage_->write_record(bytes_, true);
  open_ = error == 0;
  return error;
}

void DirectoryUsage::Change::recount_if_old() {
  if (usage_->clock_.now_s() - usage_->counted_s_ < kRecountSeconds) return;
  if (begin() == 0) usage_->recount(*this);
}

void DirectoryUsage::Change::finish() {
  if (usage_ == nullptr) return;
  // A record that stays open is counted anew by whoever comes next.
  if (open_) static_cast<void>(usage_->write_record(bytes_, false));
  open_ = false;
  usage_->lock_.release();
  usage_ = nullptr;
  here_.unlock();
}

}  // namespace drafthouse
