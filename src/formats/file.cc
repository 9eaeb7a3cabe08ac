#include "formats/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace drafthouse {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

File::File(std::string path, int descriptor, std::uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> File::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return Status(Code::invalid_argument, "a file name contains a zero byte");
  }
  // O_NONBLOCK: opening a named pipe must fail below instead of waiting for a writer.
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) {
    const Code code =
        errno == ENOENT || errno == ENOTDIR ? Code::not_found : Code::invalid_argument;
    return Status(code, fmt::format("{}: cannot open: {}", path, reason(errno)));
  }
  struct stat info{};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) {
    ::close(descriptor);
    return Status(Code::invalid_argument, fmt::format("{}: not a regular file", path));
  }
  return File(path, descriptor, static_cast<std::uint64_t>(info.st_size));
}

std::string File::identity() const {
  constexpr std::uint64_t kEnd = 64 << 10;
  struct stat info{};
  if (::fstat(descriptor_, &info) != 0) return {};
  std::string text = fmt::format("{}:{}:{}:{}.{}:{}.{}:", info.st_dev, info.st_ino, info.st_size,
                                 info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                                 info.st_ctim.tv_nsec);
  for (const std::uint64_t offset : {std::uint64_t{0}, size_ - std::min(kEnd, size_)}) {
    std::string bytes(std::min(kEnd, size_), '\0');
    if (!read(offset, std::as_writable_bytes(std::span(bytes))).ok()) return {};
    text += bytes;
  }
  return text;
}

Result<bool> is_there(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) return true;
  const int error = errno;
  if (error != ENOENT && error != ENOTDIR) {
    return Status(Code::invalid_argument, fmt::format("{}: {}", path, reason(error)));
  }
  if (::lstat(path.c_str(), &info) == 0) {
    return Status(Code::not_found,
                  fmt::format("{}: is a link to something that is not there", path));
  }
  return false;
}

Status File::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (out.size() > size_ || offset > size_ - out.size()) {
    return Status(Code::corrupt, fmt::format("{}: bytes {}+{} lie past the end ({} bytes)", path_,
                                             offset, out.size(), size_));
  }
  constexpr std::size_t kChunk = 1u << 30;  // pread takes at most 0x7ffff000 bytes at once
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, std::min(out.size() - done, kChunk),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Status(Code::internal, fmt::format("{}: cannot read: {}", path_, reason(errno)));
    }
    if (got == 0) {
      return Status(Code::corrupt, fmt::format("{}: ends at byte {}; it was cut short after it was "
                                               "opened",
                                               path_, offset + done));
    }
    done += static_cast<std::size_t>(got);
  }
  return Status();
}

Result<std::optional<std::string>> read_text_file(const std::string& path,
                                                  std::uint64_t bytes_max) {
  auto there = is_there(path);
  if (!there.ok()) return there.status();
  if (!there.value()) return std::optional<std::string>();
  auto opened = File::open(path);
  if (!opened.ok()) return opened.status();
  const File& file = opened.value();
  if (file.size() > bytes_max) {
    return Status(Code::unsupported,
                  fmt::format("{}: {} bytes; at most {} are read", path, file.size(), bytes_max));
  }
  std::string text(file.size(), '\0');
  auto read = file.read(0, std::as_writable_bytes(std::span(text)));
  if (!read.ok()) return read;
  return std::optional<std::string>(std::move(text));
}

}  // namespace drafthouse
