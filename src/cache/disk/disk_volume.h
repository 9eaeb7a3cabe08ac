#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_meter.h"
#include "cache/disk/disk_options.h"
#include "cache/disk/file_system.h"
#include "cache/disk/names.h"
#include "drafthouse/status.h"

namespace drafthouse {

// What the parts of one disk tier share. All of it outlives them.
struct DiskServices {
  FileSystem& files;
  const Clock& clock;
  DiskMeter& meter;
  DiskLog& log;
  std::uint64_t quarantine_bytes_max;  // of one digest
  double lock_wait_s = DiskOptions{}.lock_wait_s;
};

// A cache directory that was found good and is open. When it vanishes, another volume is opened.
class DiskVolume : public std::enable_shared_from_this<DiskVolume> {
 public:
  // Makes the directory and its marker when `create` and there is nothing. invalid_argument: it is
  // somebody else's, open to others, or not a cache directory: refused for good. unsupported: of
  // another format. not_found, internal: the system says no, it may work later.
  static Result<std::shared_ptr<DiskVolume>> open(const DiskServices& services,
                                                  const std::string& directory, bool create);

  const DiskServices& services() const { return services_; }
  const std::string& directory() const { return directory_; }
  DiskFolder& root() { return *root_; }
  DiskFolder& version() { return *version_; }  // DIR/v1
  DirectoryUsage& usage() { return *usage_; }
  RootName root_of(std::string_view salt) const;
  // Whether the path still leads here.
  bool still_there() const;
  // Digests that have a folder.
  std::vector<std::string> digests();
  // Why nothing can be written here; empty: writing works as far as known.
  const std::string& read_only_why() const { return read_only_why_; }
  // What it means that usage().lock() failed.
  Status lock_error(Errno error) const;

 private:
  DiskVolume(const DiskServices& services, std::string directory)
      : services_(services), directory_(std::move(directory)) {}
  Status open_root(bool create);
  Status check_marker(bool create);
  Status open_version(bool create);
  Status read_key(bool create);
  // Whether the key is there; its writer renames a whole file into place.
  Result<bool> load_key();
  Status system_error(const std::string& what, Errno error) const;

  DiskServices services_;
  std::string directory_;
  std::unique_ptr<DiskFolder> root_;
  std::unique_ptr<DiskFolder> version_;
  std::unique_ptr<DirectoryUsage> usage_;
  std::array<std::byte, 32> key_{};
  std::string read_only_why_;
};

// Refuses folders of another owner and those that others may write in; `path` is for the message.
Status check_folder_owner(FileSystem& files, DiskFolder& folder, const std::string& path);

// "No space left on device"
std::string describe(Errno error);

}  // namespace drafthouse
