#include "cache/disk/directory_usage.h"

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

constexpr std::chrono::milliseconds kLockWait{5000};
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

void add_below(DiskFolder& folder, int depth, std::uint64_t& bytes) {
  std::vector<FolderEntry> entries;
  if (folder.list(entries) != 0) return;
  for (const FolderEntry& entry : entries) {
    if (entry.is_folder && depth < kFolderDepthMax) {
      std::unique_ptr<DiskFolder> below;
      if (folder.open_folder(entry.name, false, below) == 0) add_below(*below, depth + 1, bytes);
    } else if (entry.is_file) {
      FileStat stat;
      if (folder.stat_entry(entry.name, stat) == 0) bytes += charged_bytes(stat.bytes);
    }
  }
}

}  // namespace

std::uint64_t charged_below(DiskFolder& folder) {
  std::uint64_t bytes = 0;
  add_below(folder, 0, bytes);
  return bytes;
}

DirectoryUsage::DirectoryUsage(FileSystem& files, const Clock& clock, DiskFolder& root,
                               DiskMeter& meter)
    : files_(files), clock_(clock), root_(root), meter_(meter) {
  const std::string boot = files.boot_id();
  boot_ = checksum(std::as_bytes(std::span(boot)));
}

Errno DirectoryUsage::lock(Change& change) {
  change.here_ = std::unique_lock<std::timed_mutex>(mutex_, std::defer_lock);
  if (!change.here_.try_lock_for(kLockWait)) return EBUSY;
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
  const auto deadline = std::chrono::steady_clock::now() + kLockWait;
  for (;;) {
    Errno error = 0;
    switch (lock_.try_take(root_, kLockName, error)) {
      case LockFile::Outcome::held:
        return 0;
      case LockFile::Outcome::unsupported:
        return ENOLCK;
      case LockFile::Outcome::failed:
        return error;
      case LockFile::Outcome::busy:
        break;
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
  const bool good = got == sizeof record && record.magic == fresh.magic &&
                    record.version == fresh.version && record.checksum == checksum_of(record) &&
                    record.open == 0 && record.boot == boot_;
  change.bytes_ = record.bytes;
  if (!good) {
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
  change.bytes_ = charged_below(root_);
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
