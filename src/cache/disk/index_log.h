#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/disk/file_system.h"
#include "cache/disk/run_record.h"

namespace drafthouse {

// The file `index` of a digest's folder: a record for each run that was published or removed, in
// this order. Written by the holder of the digest's lock only. It spares readers a look at every
// manifest; the manifests decide. Not thread-safe.
class IndexLog {
 public:
  // `folder` must outlive this.
  explicit IndexLog(DiskFolder& folder) : folder_(&folder) {}

  struct News {
    bool from_start = false;                  // forget what earlier calls told
    bool damaged = false;                     // or missing: look at the manifests instead
    std::vector<DecodedRecord> records = {};  // runs and removals
  };
  // What was appended since the last call. A record that is not yet whole is left for the next one.
  Errno read_news(News& news);

  // By the holder, who has read the log to its end. `grown`: by how much the file is charged more.
  // ESTALE: the file has gone or is another one; rewrite it.
  Errno append(std::span<const std::byte> record, std::uint64_t& grown);
  // A new file with these records takes the place of the old one. `before`, `after`: charged bytes.
  // After an error there is none.
  Errno rewrite(const std::vector<std::vector<std::byte>>& records, std::uint64_t& before,
                std::uint64_t& after);
  std::uint64_t bytes() const { return position_; }

 private:
  Errno open();

  DiskFolder* folder_;
  std::unique_ptr<DiskFile> file_;
  std::uint64_t inode_ = 0;
  bool trusted_ = false;             // nobody but the folder's owner can have written it
  std::uint64_t position_ = 0;       // end of what was read or written
  std::uint64_t damaged_bytes_ = 0;  // length of the file when it was found damaged
};

}  // namespace drafthouse
