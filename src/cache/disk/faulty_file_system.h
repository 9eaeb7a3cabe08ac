#pragma once

// A file system that fails when it is told to: for tests.

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cache/disk/file_system.h"

namespace drafthouse {

// What is about to happen, or has just happened.
struct FileOperation {
  std::string
      kind;  // open, create, read, write, resize, sync, lock, rename, remove, touch, list, stat
  std::string name;  // of the file or folder; of a rename, the new one
  bool after = false;

  // manifest, pages, index, usage, lock, key, marker, folder: what the name is in the format.
  std::string thing() const;
  // "before rename manifest"
  std::string point() const;
};

struct Fault {
  Errno error = 0;       // 0: goes on
  bool partial = false;  // a write that fails has written its first half
};

// Passes everything on to another file system; a hook may make any operation fail, or end the
// process. Thread-safe.
class FaultyFileSystem final : public FileSystem {
 public:
  // Called before and after each operation; what it returns after one is ignored.
  using Hook = std::function<Fault(const FileOperation&)>;

  explicit FaultyFileSystem(FileSystem& below);
  void set_hook(Hook hook);

  Errno open_root(const std::string& path, bool create, std::unique_ptr<DiskFolder>& out) override;
  std::int64_t now_ns() override { return below_.now_ns(); }
  std::uint32_t user() override { return user_ == kSameUser ? below_.user() : user_; }
  void set_user(std::uint32_t user) { user_ = user; }
  std::string boot_id() override { return below_.boot_id(); }

  // For the parts.
  Fault before(const char* kind, const std::string& name);
  void after(const char* kind, const std::string& name);

 private:
  static constexpr std::uint32_t kSameUser = ~0u;

  FileSystem& below_;
  std::mutex mutex_;
  std::shared_ptr<const Hook> hook_;
  std::uint32_t user_ = kSameUser;
};

}  // namespace drafthouse
