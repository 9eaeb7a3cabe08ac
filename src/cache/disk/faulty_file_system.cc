#include "cache/disk/faulty_file_system.h"

#include <utility>

#include "cache/disk/names.h"

namespace drafthouse {
namespace {

// Runs `call` unless the hook objects.
template <class Call>
Errno guarded(FaultyFileSystem& system, const char* kind, const std::string& name, Call&& call) {
  const Fault fault = system.before(kind, name);
  if (fault.error != 0) return fault.error;
  const Errno error = call();
  if (error == 0) system.after(kind, name);
  return error;
}

class FaultyFile final : public DiskFile {
 public:
  FaultyFile(FaultyFileSystem& system, std::string name, std::unique_ptr<DiskFile> below)
      : system_(system), name_(std::move(name)), below_(std::move(below)) {}

  Errno read(std::uint64_t offset, std::span<std::byte> into, std::size_t& got) override {
    got = 0;
    return guarded(system_, "read", name_, [&] { return below_->read(offset, into, got); });
  }
  Errno write(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const Fault fault = system_.before("write", name_);
    if (fault.partial) {
      const Errno error = below_->write(offset, bytes.first(bytes.size() / 2));
      if (error != 0) return error;
    }
    if (fault.error != 0) return fault.error;
    const Errno error = below_->write(offset, bytes);
    if (error == 0) system_.after("write", name_);
    return error;
  }
  Errno resize(std::uint64_t bytes) override {
    return guarded(system_, "resize", name_, [&] { return below_->resize(bytes); });
  }
  Errno sync() override {
    return guarded(system_, "sync", name_, [&] { return below_->sync(); });
  }
  Errno stat(FileStat& out) override {
    return guarded(system_, "stat", name_, [&] { return below_->stat(out); });
  }
  Errno try_lock() override {
    return guarded(system_, "lock", name_, [&] { return below_->try_lock(); });
  }
  void unlock() override { below_->unlock(); }

 private:
  FaultyFileSystem& system_;
  std::string name_;
  std::unique_ptr<DiskFile> below_;
};

class FaultyFolder final : public DiskFolder {
 public:
  FaultyFolder(FaultyFileSystem& system, std::string name, std::unique_ptr<DiskFolder> below)
      : system_(system), name_(std::move(name)), below_(std::move(below)) {}

  Errno open_folder(const std::string& name, bool create,
                    std::unique_ptr<DiskFolder>& out) override {
    std::unique_ptr<DiskFolder> folder;
    const Errno error = guarded(system_, create ? "create" : "open", name,
                                [&] { return below_->open_folder(name, create, folder); });
    if (error == 0) out = std::make_unique<FaultyFolder>(system_, name, std::move(folder));
    return error;
  }
  Errno open_file(const std::string& name, OpenMode mode, std::unique_ptr<DiskFile>& out) override {
    const bool creates = mode == OpenMode::create || mode == OpenMode::open_or_create;
    std::unique_ptr<DiskFile> file;
    const Errno error = guarded(system_, creates ? "create" : "open", name,
                                [&] { return below_->open_file(name, mode, file); });
    if (error == 0) out = std::make_unique<FaultyFile>(system_, name, std::move(file));
    return error;
  }
  Errno stat_entry(const std::string& name, FileStat& out) override {
    return guarded(system_, "stat", name, [&] { return below_->stat_entry(name, out); });
  }
  Errno list(std::vector<FolderEntry>& out) override {
    return guarded(system_, "list", name_, [&] { return below_->list(out); });
  }
  Errno rename(const std::string& from, DiskFolder& to_folder, const std::string& to) override {
    DiskFolder& target = *static_cast<FaultyFolder&>(to_folder).below_;
    return guarded(system_, "rename", to, [&] { return below_->rename(from, target, to); });
  }
  Errno remove_file(const std::string& name) override {
    return guarded(system_, "remove", name, [&] { return below_->remove_file(name); });
  }
  Errno remove_folder(const std::string& name) override {
    return guarded(system_, "remove", name, [&] { return below_->remove_folder(name); });
  }
  Errno set_modified(const std::string& name, std::int64_t ns) override {
    return guarded(system_, "touch", name, [&] { return below_->set_modified(name, ns); });
  }
  Errno sync() override {
    return guarded(system_, "sync", name_, [&] { return below_->sync(); });
  }
  Errno stat(FileStat& out) override {
    return guarded(system_, "stat", name_, [&] { return below_->stat(out); });
  }
  Errno make_private() override { return below_->make_private(); }
  Errno free_bytes(std::uint64_t& out) override { return below_->free_bytes(out); }

 private:
  FaultyFileSystem& system_;
  std::string name_;
  std::unique_ptr<DiskFolder> below_;
};

}  // namespace

std::string FileOperation::thing() const {
  std::string_view bare = name;
  if (bare.ends_with(kTemporarySuffix)) bare.remove_suffix(sizeof kTemporarySuffix - 1);
  if (const auto file = parse_run_file(bare)) return file->is_manifest ? "manifest" : "pages";
  if (bare == kMarkerName) return "marker";
  for (const char* known : {kIndexName, kUsageName, kLockName, kKeyName}) {
    if (bare == known) return known;
  }
  return "folder";
}

std::string FileOperation::point() const {
  return (after ? "after " : "before ") + kind + " " + thing();
}

FaultyFileSystem::FaultyFileSystem(FileSystem& below) : below_(below) {}

void FaultyFileSystem::set_hook(Hook hook) {
  const std::lock_guard<std::mutex> lock(mutex_);
  hook_ = hook ? std::make_shared<const Hook>(std::move(hook)) : nullptr;
}

Fault FaultyFileSystem::before(const char* kind, const std::string& name) {
  std::shared_ptr<const Hook> hook;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    hook = hook_;
  }
  return hook == nullptr ? Fault{} : (*hook)(FileOperation{kind, name, false});
}

void FaultyFileSystem::after(const char* kind, const std::string& name) {
  std::shared_ptr<const Hook> hook;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    hook = hook_;
  }
  if (hook != nullptr) (*hook)(FileOperation{kind, name, true});
}

Errno FaultyFileSystem::open_root(const std::string& path, bool create,
                                  std::unique_ptr<DiskFolder>& out) {
  std::unique_ptr<DiskFolder> folder;
  const Errno error =
      guarded(*this, "open", path, [&] { return below_.open_root(path, create, folder); });
  if (error == 0) out = std::make_unique<FaultyFolder>(*this, path, std::move(folder));
  return error;
}

}  // namespace drafthouse
