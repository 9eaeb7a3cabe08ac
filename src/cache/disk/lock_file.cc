#include "cache/disk/lock_file.h"

#include <cerrno>
#include <utility>

namespace drafthouse {

LockFile::Outcome LockFile::try_take(DiskFolder& folder, const std::string& name, Errno& error) {
  if (held()) return Outcome::held;
  // A second try for when the file was removed between opening and locking it.
  for (int i = 0; i < 2; ++i) {
    std::unique_ptr<DiskFile> file;
    error = folder.open_file(name, OpenMode::open_or_create, file);
    if (error != 0) return Outcome::failed;
    error = file->try_lock();
    if (error == EWOULDBLOCK) return Outcome::busy;
    if (error == EIO) return Outcome::failed;
    if (error != 0) return Outcome::unsupported;
    file_ = std::move(file);
    if (still_named(folder, name)) return Outcome::held;
    release();
  }
  return Outcome::busy;
}

bool LockFile::still_named(DiskFolder& folder, const std::string& name) const {
  FileStat ours;
  FileStat named;
  return file_ != nullptr && file_->stat(ours) == 0 && folder.stat_entry(name, named) == 0 &&
         ours.inode == named.inode && ours.device == named.device;
}

}  // namespace drafthouse
