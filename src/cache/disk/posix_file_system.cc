#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "cache/disk/file_system.h"
#include "cache/disk/lock_descriptors.h"

namespace drafthouse {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr mode_t kFolderMode = 0700;

FileStat from_system(const struct stat& s) {
  FileStat out;
  out.bytes = static_cast<std::uint64_t>(s.st_size);
  out.modified_ns = std::int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
  out.inode = s.st_ino;
  out.device = s.st_dev;
  out.links = s.st_nlink;
  out.owner = s.st_uid;
  out.mode = s.st_mode & 07777;
  out.is_folder = S_ISDIR(s.st_mode);
  out.is_file = S_ISREG(s.st_mode);
  return out;
}

Errno stat_descriptor(int descriptor, FileStat& out) {
  struct stat s{};
  if (fstat(descriptor, &s) != 0) return errno;
  out = from_system(s);
  return 0;
}

Errno sync_descriptor(int descriptor) {
  while (fsync(descriptor) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

class PosixFile final : public DiskFile {
 public:
  explicit PosixFile(int descriptor) : descriptor_(descriptor) {}
  ~PosixFile() override {
    unlock();
    close(descriptor_);
  }

  Errno read(std::uint64_t offset, std::span<std::byte> into, std::size_t& got) override {
    got = 0;
    while (got < into.size()) {
      const ssize_t n = pread(descriptor_, into.data() + got, into.size() - got,
                              static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    return 0;
  }

  Errno write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = pwrite(descriptor_, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(offset + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      if (n == 0) return EIO;
      done += static_cast<std::size_t>(n);
    }
    return 0;
  }

  Errno resize(std::uint64_t bytes) override {
    return ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  Errno sync() override { return sync_descriptor(descriptor_); }
  Errno stat(FileStat& out) override { return stat_descriptor(descriptor_, out); }

  Errno try_lock() override {
    remember_lock_descriptor(descriptor_);
    while (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      const Errno error = errno;
      forget_lock_descriptor(descriptor_);
      return error;
    }
    locked_ = true;
    return 0;
  }
  void unlock() override {
    if (!std::exchange(locked_, false)) return;
    flock(descriptor_, LOCK_UN);
    forget_lock_descriptor(descriptor_);
  }

 private:
  int descriptor_;
  bool locked_ = false;
};

class PosixFolder final : public DiskFolder {
 public:
  explicit PosixFolder(int descriptor) : descriptor_(descriptor) {}
  ~PosixFolder() override { close(descriptor_); }

  Errno open_folder(const std::string& name, bool create,
                    std::unique_ptr<DiskFolder>& out) override {
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int descriptor = openat(descriptor_, name.c_str(), flags);
    if (descriptor < 0 && errno == ENOENT && create) {
      if (mkdirat(descriptor_, name.c_str(), kFolderMode) != 0 && errno != EEXIST) return errno;
      descriptor = openat(descriptor_, name.c_str(), flags);
    }
    if (descriptor < 0) return errno;
    out = std::make_unique<PosixFolder>(descriptor);
    return 0;
  }

  Errno open_file(const std::string& name, OpenMode mode, std::unique_ptr<DiskFile>& out) override {
    // O_NONBLOCK: a fifo that somebody put there must not stop us.
    int flags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    switch (mode) {
      case OpenMode::read: flags |= O_RDONLY; break;
      case OpenMode::write: flags |= O_RDWR; break;
      case OpenMode::create: flags |= O_RDWR | O_CREAT | O_EXCL; break;
      case OpenMode::open_or_create: flags |= O_RDWR | O_CREAT; break;
    }
    const int descriptor = openat(descriptor_, name.c_str(), flags, kFileMode);
    if (descriptor < 0) return errno;
    struct stat s{};
    if (fstat(descriptor, &s) != 0 || !S_ISREG(s.st_mode)) {
      close(descriptor);
      return EINVAL;
    }
    out = std::make_unique<PosixFile>(descriptor);
    return 0;
  }

  Errno stat_entry(const std::string& name, FileStat& out) override {
    struct stat s{};
    if (fstatat(descriptor_, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) != 0) return errno;
    out = from_system(s);
    return 0;
  }

  Errno list(std::vector<FolderEntry>& out) override {
    out.clear();
    const int copy = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0) return errno;
    DIR* stream = fdopendir(copy);
    if (stream == nullptr) {
      const Errno error = errno;
      close(copy);
      return error;
    }
    for (;;) {
      errno = 0;
      const dirent* entry = readdir(stream);
      if (entry == nullptr) break;
      FolderEntry found{entry->d_name, entry->d_type == DT_DIR, entry->d_type == DT_REG};
      if (found.name == "." || found.name == "..") continue;
      if (entry->d_type == DT_UNKNOWN) {
        FileStat s;
        if (stat_entry(found.name, s) != 0) continue;
        found.is_folder = s.is_folder;
        found.is_file = s.is_file;
      }
      out.push_back(std::move(found));
    }
    const Errno error = errno;
    closedir(stream);
    return error;
  }

  Errno rename(const std::string& from, DiskFolder& to_folder, const std::string& to) override {
    const int target = static_cast<PosixFolder&>(to_folder).descriptor_;
    return renameat(descriptor_, from.c_str(), target, to.c_str()) == 0 ? 0 : errno;
  }
  Errno remove_file(const std::string& name) override {
    return unlinkat(descriptor_, name.c_str(), 0) == 0 ? 0 : errno;
  }
  Errno remove_folder(const std::string& name) override {
    return unlinkat(descriptor_, name.c_str(), AT_REMOVEDIR) == 0 ? 0 : errno;
  }
  Errno set_modified(const std::string& name, std::int64_t ns) override {
    timespec times[2] = {};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    times[1].tv_nsec = static_cast<long>(ns % 1'000'000'000);
    return utimensat(descriptor_, name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
  }
  Errno sync() override { return sync_descriptor(descriptor_); }
  Errno stat(FileStat& out) override { return stat_descriptor(descriptor_, out); }
  Errno make_private() override { return fchmod(descriptor_, kFolderMode) == 0 ? 0 : errno; }

  Errno free_bytes(std::uint64_t& out) override {
    struct statvfs s{};
    if (fstatvfs(descriptor_, &s) != 0) return errno;
    out = std::uint64_t{s.f_bavail} * s.f_frsize;
    return 0;
  }

 private:
  int descriptor_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Errno open_root(const std::string& path, bool create, std::unique_ptr<DiskFolder>& out) override {
    if (create) {
      for (std::size_t end = path.find('/', 1); end != std::string::npos;
           end = path.find('/', end + 1)) {
        mkdir(path.substr(0, end).c_str(), kFolderMode);  // what fails shows below
      }
      if (mkdir(path.c_str(), kFolderMode) != 0 && errno != EEXIST) return errno;
    }
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    out = std::make_unique<PosixFolder>(descriptor);
    return 0;
  }
  std::int64_t now_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  std::uint32_t user() override { return geteuid(); }
  std::string boot_id() override {
    std::string text(64, '\0');
    const int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return {};
    const ssize_t n = ::read(descriptor, text.data(), text.size());
    close(descriptor);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static PosixFileSystem system;
  return system;
}

}  // namespace drafthouse
