#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drafthouse {

// An errno value; 0 means it worked.
using Errno = int;

struct FileStat {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since the epoch
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
  std::uint64_t links = 0;  // 0: removed while open
  std::uint32_t owner = 0;
  std::uint32_t mode = 0;  // permission bits
  bool is_folder = false;
  bool is_file = false;
};

// Whether nobody but this user can have written it.
inline bool only_written_by(std::uint32_t user, const FileStat& stat) {
  constexpr std::uint32_t kOthersMayWrite = 022;
  return stat.owner == user && (stat.mode & kOthersMayWrite) == 0;
}

// An open file. Reads and writes may come from several threads at once.
class DiskFile {
 public:
  virtual ~DiskFile() = default;

  // Fills `into` from `offset`; `got` is smaller only at the end of the file.
  [[nodiscard]] virtual Errno read(std::uint64_t offset, std::span<std::byte> into,
                                   std::size_t& got) = 0;
  // All of it, or an error after which any part may have been written.
  [[nodiscard]] virtual Errno write(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual Errno resize(std::uint64_t bytes) = 0;
  [[nodiscard]] virtual Errno sync() = 0;
  [[nodiscard]] virtual Errno stat(FileStat& out) = 0;
  // Exclusive, at once or EWOULDBLOCK; held until unlock() or the end of this object, never by
  // children of the process. Other errors: the file system has no locks.
  [[nodiscard]] virtual Errno try_lock() = 0;
  virtual void unlock() = 0;
};

enum class OpenMode : std::uint8_t {
  read,            // must exist
  write,           // must exist; read and write
  create,          // must not exist; read and write, mode 0600
  open_or_create,  // read and write, mode 0600
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
  bool is_file = false;
};

// An open folder. Names are single components, never followed when they are symbolic links.
class DiskFolder {
 public:
  virtual ~DiskFolder() = default;

  // `create`: made with mode 0700 when missing.
  [[nodiscard]] virtual Errno open_folder(const std::string& name, bool create,
                                          std::unique_ptr<DiskFolder>& out) = 0;
  [[nodiscard]] virtual Errno open_file(const std::string& name, OpenMode mode,
                                        std::unique_ptr<DiskFile>& out) = 0;
  [[nodiscard]] virtual Errno stat_entry(const std::string& name, FileStat& out) = 0;
  [[nodiscard]] virtual Errno list(std::vector<FolderEntry>& out) = 0;
  // Within one file system, replacing what has the new name.
  [[nodiscard]] virtual Errno rename(const std::string& from, DiskFolder& to_folder,
                                     const std::string& to) = 0;
  [[nodiscard]] virtual Errno remove_file(const std::string& name) = 0;
  [[nodiscard]] virtual Errno remove_folder(const std::string& name) = 0;
  [[nodiscard]] virtual Errno set_modified(const std::string& name, std::int64_t ns) = 0;
  [[nodiscard]] virtual Errno sync() = 0;
  [[nodiscard]] virtual Errno stat(FileStat& out) = 0;
  [[nodiscard]] virtual Errno make_private() = 0;  // mode 0700
  // Space left for this user on the file system.
  [[nodiscard]] virtual Errno free_bytes(std::uint64_t& out) = 0;
};

// What the disk tier needs of a file system; tests bring their own. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The folder at a path of the caller's; symbolic links are followed here only. `create`: missing
  // folders on the way are made too.
  [[nodiscard]] virtual Errno open_root(const std::string& path, bool create,
                                        std::unique_ptr<DiskFolder>& out) = 0;
  // The time that files are stamped with, in ns since the epoch.
  virtual std::int64_t now_ns() = 0;
  virtual std::uint32_t user() = 0;
  // Changes when the machine starts anew; empty where unknown.
  virtual std::string boot_id() = 0;
};

// The machine's; lives as long as the process.
FileSystem& posix_file_system();

}  // namespace drafthouse
