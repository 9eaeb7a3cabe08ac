#include "cache/disk/index_log.h"

#include <cerrno>
#include <string>
#include <utility>

#include "cache/disk/names.h"

namespace drafthouse {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

}  // namespace

Errno IndexLog::open() {
  file_.reset();
  const Errno error = folder_->open_file(kIndexName, OpenMode::read, file_);
  if (error != 0) return error;
  FileStat stat;
  const Errno failed = file_->stat(stat);
  if (failed != 0) return failed;
  inode_ = stat.inode;
  FileStat folder;
  const Errno unknown = folder_->stat(folder);
  trusted_ = unknown == 0 && only_written_by(folder.owner, stat);
  return unknown;
}

Errno IndexLog::read_news(News& news) {
  FileStat stat;
  Errno error = folder_->stat_entry(kIndexName, stat);
  if (error != 0) {
    file_.reset();
    position_ = 0;
    news.damaged = news.from_start = error == ENOENT;
    return error == ENOENT ? 0 : error;
  }
  if (file_ == nullptr || stat.inode != inode_ || stat.bytes < position_) {
    error = open();
    if (error != 0) return error;
    position_ = 0;
    damaged_bytes_ = 0;
    news.from_start = true;
  }
  if (stat.bytes <= position_ || stat.bytes == damaged_bytes_) return 0;
  if (!trusted_) {
    news.damaged = true;
    damaged_bytes_ = stat.bytes;
    return 0;
  }
  std::vector<std::byte> bytes;
  std::uint64_t read_to = position_;  // of the file
  std::size_t used = 0;               // of `bytes`
  for (bool more = true;;) {
    const DecodedRecord record = decode_record(std::span(bytes).subspan(used));
    if (record.kind == DecodedRecord::Kind::partial) {
      if (!more) return 0;
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(used));
      used = 0;
      const std::size_t had = bytes.size();
      bytes.resize(had + kReadBytes);
      std::size_t got = 0;
      error = file_->read(read_to, std::span(bytes).subspan(had), got);
      if (error != 0) return error;
      bytes.resize(had + got);
      read_to += got;
      more = got > 0;
      continue;
    }
    if (record.kind == DecodedRecord::Kind::damaged) {
      // Perhaps it is just being written: another look when there is more.
      news.damaged = true;
      damaged_bytes_ = stat.bytes;
      return 0;
    }
    used += record.bytes;
    position_ += record.bytes;
    news.records.push_back(std::move(record));
  }
}

Errno IndexLog::append(std::span<const std::byte> record, std::uint64_t& grown) {
  grown = 0;
  std::unique_ptr<DiskFile> file;
  const Errno error = folder_->open_file(kIndexName, OpenMode::write, file);
  if (error != 0) return error == ENOENT ? ESTALE : error;
  FileStat stat;
  Errno failed = file->stat(stat);
  if (failed != 0) return failed;
  if (file_ == nullptr || inode_ != stat.inode || stat.bytes < position_) return ESTALE;
  // Over what a writer that died, or a full disk, left unfinished.
  failed = file_->write(position_, record);
  const std::uint64_t end = position_ + (failed == 0 ? record.size() : 0);
  const Errno cut = stat.bytes > end || failed != 0 ? file_->resize(end) : 0;
  const std::uint64_t before = charged_bytes(stat.bytes);
  const std::uint64_t after = charged_bytes(end);
  grown = after > before ? after - before : 0;
  if (failed == 0) position_ = end;
  return failed != 0 ? failed : cut;
}

Errno IndexLog::rewrite(const std::vector<std::vector<std::byte>>& records, std::uint64_t& before,
                        std::uint64_t& after) {
  before = after = 0;
  file_.reset();
  position_ = 0;
  // The old one goes first, so that the directory never holds both: who finds none reads manifests.
  FileStat old;
  Errno error = folder_->stat_entry(kIndexName, old);
  if (error == 0) error = folder_->remove_file(kIndexName);
  if (error == 0) before = charged_bytes(old.bytes);
  if (error != 0 && error != ENOENT) return error;
  const std::string temporary = std::string(kIndexName) + kTemporarySuffix;
  std::unique_ptr<DiskFile> file;
  error = folder_->open_file(temporary, OpenMode::create, file);
  std::uint64_t end = 0;
  for (const std::vector<std::byte>& record : records) {
    if (error == 0) error = file->write(end, record);
    end += record.size();
  }
  FileStat stat;
  if (error == 0) error = file->stat(stat);
  if (error == 0) error = folder_->rename(temporary, *folder_, kIndexName);
  if (error != 0) {
    static_cast<void>(folder_->remove_file(temporary));
    return error;
  }
  after = charged_bytes(end);
  file_ = std::move(file);
  inode_ = stat.inode;
  position_ = end;
  damaged_bytes_ = 0;
  return 0;
}

}  // namespace drafthouse
