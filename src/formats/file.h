#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "drafthouse/status.h"
#include "formats/byte_source.h"

namespace drafthouse {

// A regular file opened for reading. It stays open, so replacing it on disk changes nothing here.
// Immutable and thread-safe: reads go through pread. Move-only.
class File final : public ByteSource {
 public:
  // not_found when it does not exist; invalid_argument when it is not a regular file.
  static Result<File> open(const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() override;

  const std::string& name() const override { return path_; }
  std::uint64_t size() const override { return size_; }
  Status read(std::uint64_t offset, std::span<std::byte> out) const override;
  // What tells this file from all others, and from itself after a change: device, inode, size,
  // times of change, and the bytes at both ends. Empty when it cannot be read.
  std::string identity() const;

 private:
  File(std::string path, int descriptor, std::uint64_t size);

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Whether something stands at `path`, links followed. An error, with the reason, when that cannot
// be known: no permission, a loop of links, a name that is too long. A link to nothing is an error
// too.
Result<bool> is_there(const std::string& path);

// The content of a text file of at most `bytes_max`; nothing when there is no such file. A link to
// nothing is an error: somebody meant a file to be there.
Result<std::optional<std::string>> read_text_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace drafthouse
