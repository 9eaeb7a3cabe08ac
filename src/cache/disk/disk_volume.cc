#include "cache/disk/disk_volume.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "cache/disk/hashing.h"
#include "cache/disk/run_record.h"

namespace drafthouse {
namespace {

constexpr std::string_view kMarker = "drafthouse prefix cache\n";
Errno read_whole(DiskFile& file, std::string& text, std::size_t bytes_max) {
  text.resize(bytes_max);
  std::size_t got = 0;
  const Errno error = file.read(0, std::as_writable_bytes(std::span(text)), got);
  text.resize(error == 0 ? got : 0);
  return error;
}

bool refused_writing(Errno error) { return error == EROFS || error == EACCES || error == EPERM; }

}  // namespace

std::string describe(Errno error) { return std::generic_category().message(error); }

Status check_folder_owner(FileSystem& files, DiskFolder& folder, const std::string& path) {
  FileStat stat;
  const Errno error = folder.stat(stat);
  if (error != 0) return {Code::internal, fmt::format("{}: {}", path, describe(error))};
  if (only_written_by(files.user(), stat)) return {};
  if (stat.owner != files.user()) {
    return {Code::invalid_argument,
            fmt::format("cache directory {} belongs to user {}, this process runs as {}: name a "
                        "directory of your own",
                        path, stat.owner, files.user())};
  }
  return {Code::invalid_argument,
          fmt::format("cache directory {} may be written by others (mode {:04o}): chmod 700 it, or "
                      "name another one",
                      path, stat.mode)};
}

Status DiskVolume::system_error(const std::string& what, Errno error) const {
  const Code code = error == ENOENT ? Code::not_found : Code::internal;
  return {code, fmt::format("disk cache {}: {}: {}", directory_, what, describe(error))};
}

Result<std::shared_ptr<DiskVolume>> DiskVolume::open(const DiskServices& services,
                                                     const std::string& directory, bool create) {
  std::shared_ptr<DiskVolume> volume(new DiskVolume(services, directory));
  Status status = volume->open_root(create);
  if (status.ok()) status = volume->check_marker(create);
  if (status.ok()) status = volume->open_version(create);
  if (status.ok()) {
    volume->usage_ = std::make_unique<DirectoryUsage>(
        services.files, services.clock, *volume->root_, services.meter, services.lock_wait_s);
    status = volume->read_key(create);
  }
  if (!status.ok()) return status;
  return volume;
}

Status DiskVolume::open_root(bool create) {
  const Errno error = services_.files.open_root(directory_, create, root_);
  if (error == ENOTDIR) {
    return {Code::invalid_argument,
            fmt::format("cache directory {} is not a directory", directory_)};
  }
  return error == 0 ? Status() : system_error("cannot open the directory", error);
}

Status DiskVolume::check_marker(bool create) {
  std::unique_ptr<DiskFile> file;
  Errno error = root_->open_file(kMarkerName, OpenMode::read, file);
  std::vector<FolderEntry> entries;
  if (error == ENOENT) {
    const Errno failed = root_->list(entries);
    if (failed != 0) return system_error("cannot list the directory", failed);
    // Another process may just have made it.
    if (std::any_of(entries.begin(), entries.end(),
                    [](const FolderEntry& entry) { return entry.name == kMarkerName; })) {
      error = root_->open_file(kMarkerName, OpenMode::read, file);
    }
  }
  std::string text;
  if (error == 0) error = read_whole(*file, text, 4096);
  if (error == 0 && text == kMarker) return check_folder_owner(services_.files, *root_, directory_);
  if (error != 0 && error != ENOENT) return system_error("cannot read its marker file", error);
  if (error == 0 && !kMarker.starts_with(text)) {
    return {Code::unsupported,
            fmt::format("{}/{} is not a marker that this program knows: name another directory",
                        directory_, kMarkerName)};
  }
  if (error == ENOENT) {
    std::erase_if(entries, [](const FolderEntry& entry) { return entry.name == "lost+found"; });
    if (!entries.empty() || !create) {
      return {Code::invalid_argument,
              fmt::format("{} is not a cache directory (it has no file {}): name one, or an empty "
                          "or new directory",
                          directory_, kMarkerName)};
    }
  }
  if (Status s = check_folder_owner(services_.files, *root_, directory_); !s.ok()) return s;
  if (!create) return {};  // a marker whose writer died; nothing else is here then
  FileStat stat;
  error = root_->stat(stat);
  if (error == 0 && (stat.mode & 0200) == 0) error = EACCES;  // its owner wants it as it is
  if (error == 0) error = root_->make_private();
  if (error == 0) error = root_->open_file(kMarkerName, OpenMode::open_or_create, file);
  if (error == 0) error = file->write(0, std::as_bytes(std::span(kMarker)));
  if (error == 0) error = file->sync();
  if (error == 0) error = root_->sync();
  return error == 0 ? Status() : system_error("cannot write its marker file", error);
}

Status DiskVolume::open_version(bool create) {
  Errno error = root_->open_folder(kVersionName, false, version_);
  if (error == ENOENT && create) error = root_->open_folder(kVersionName, true, version_);
  if (error != 0) return system_error(fmt::format("cannot open {}", kVersionName), error);
  return check_folder_owner(services_.files, *version_, directory_ + "/" + kVersionName);
}

Status DiskVolume::lock_error(Errno error) const {
  if (error != EBUSY) return system_error(fmt::format("cannot lock its file {}", kLockName), error);
  return {Code::busy,
          fmt::format("disk cache {0}: another process holds its file {1}: wait for it, or end it "
                      "(fuser {0}/{1} names it)",
                      directory_, kLockName)};
}

Result<bool> DiskVolume::load_key() {
  std::unique_ptr<DiskFile> file;
  Errno error = root_->open_file(kKeyName, OpenMode::read, file);
  if (error == ENOENT) return false;
  std::string text;
  FileStat stat;
  if (error == 0) error = file->stat(stat);
  if (error == 0) error = read_whole(*file, text, key_.size() + 1);
  if (error != 0) return system_error("cannot read its key", error);
  if (!only_written_by(services_.files.user(), stat)) {
    return Status(Code::invalid_argument,
                  fmt::format("{}/{} belongs to user {} with mode {:04o}, so others can write it: "
                              "chmod 600 it, or name another cache directory",
                              directory_, kKeyName, stat.owner, stat.mode));
  }
  if (text.size() != key_.size()) return false;
  std::memcpy(key_.data(), text.data(), key_.size());
  return true;
}

Status DiskVolume::read_key(bool create) {
  Result<bool> known = load_key();
  if (!known.ok()) return known.status();
  if (known.value() && !create) return {};
  // Under the lock: of two processes that start together one makes the key.
  DirectoryUsage::Change change;
  const Errno locked = usage_->lock(change);
  if (locked == ENOLCK || refused_writing(locked)) {
    read_only_why_ = locked == ENOLCK ? "its file system has no locks"
                                      : fmt::format("it cannot be written ({})", describe(locked));
  } else if (locked != 0 && !known.value()) {
    return lock_error(locked);
  }
  if (!known.value()) known = load_key();
  if (!known.ok()) return known.status();
  if (known.value()) return {};
  if (!random_bytes(key_)) return {Code::internal, "disk cache: the system gave no random bytes"};
  // Without a key nothing that is stored can be named; a key of our own makes that a plain miss.
  if (!create || !read_only_why_.empty()) return {};
  const std::string temporary = std::string(kKeyName) + kTemporarySuffix;
  std::unique_ptr<DiskFile> file;
  Errno error = change.begin();
  if (error == 0) error = root_->open_file(temporary, OpenMode::open_or_create, file);
  if (error == 0) error = file->resize(key_.size());
  if (error == 0) error = file->write(0, key_);
  if (error == 0) error = file->sync();
  if (error == 0) error = root_->rename(temporary, *root_, kKeyName);
  if (error == 0) error = root_->sync();
  if (error != 0) return system_error("cannot write its key", error);
  change.add(charged_bytes(std::uint64_t{key_.size()}));
  return {};
}

RootName DiskVolume::root_of(std::string_view salt) const { return root_name(key_, salt); }

bool DiskVolume::still_there() const {
  std::unique_ptr<DiskFolder> now;
  FileStat named;
  FileStat ours;
  return services_.files.open_root(directory_, false, now) == 0 && now->stat(named) == 0 &&
         root_->stat(ours) == 0 && named.inode == ours.inode && named.device == ours.device &&
         root_->stat_entry(kVersionName, named) == 0 && version_->stat(ours) == 0 &&
         named.inode == ours.inode;
}

std::vector<std::string> DiskVolume::digests() {
  std::vector<FolderEntry> entries;
  std::vector<std::string> names;
  if (version_->list(entries) != 0) return names;
  for (FolderEntry& entry : entries) {
    if (entry.is_folder && is_digest(entry.name)) names.push_back(std::move(entry.name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace drafthouse
