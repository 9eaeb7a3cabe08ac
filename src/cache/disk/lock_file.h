#pragma once

#include <memory>
#include <string>

#include "cache/disk/file_system.h"

namespace drafthouse {

// An exclusive lock between processes (and between hosts of one process): a locked file. Not
// thread-safe.
class LockFile {
 public:
  enum class Outcome { held, busy, unsupported, failed };

  // Makes the file when it is missing. `failed`: `error` says why it could not be opened.
  Outcome try_take(DiskFolder& folder, const std::string& name, Errno& error);
  bool held() const { return file_ != nullptr; }
  // Whether the file is still the one that others would lock.
  bool still_named(DiskFolder& folder, const std::string& name) const;
  void release() { file_.reset(); }

 private:
  std::unique_ptr<DiskFile> file_;
};

}  // namespace drafthouse
