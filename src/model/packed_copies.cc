// A file: the header below, one XXH3 for each part of the weights, the SHA-256 of all that, zeros
// up to a page, the weights.

#include "model/packed_copies.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/xxh3.h"

namespace drafthouse {
namespace {

constexpr std::array<char, 8> kMagic = {'D', 'H', 'P', 'A', 'C', 'K', 'E', 'D'};
// Raise it when the file, or what packed bytes mean (kernels/packed.h, grouped.h), changes. One
// layout serves every instruction set.
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSpareBytes = std::uint64_t{1} << 30;  // that a copy must leave on the disk
constexpr char kLockName[] = "lock";

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t parts = 0;
  Sha256Digest content{};
  Sha256Digest weights{};
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 88);

std::string reason() { return std::generic_category().message(errno); }

std::uint64_t part_count(std::uint64_t bytes) { return (bytes + kPartBytes - 1) / kPartBytes; }
// Where the weights begin.
std::uint64_t weights_at(std::uint64_t parts) {
  const std::uint64_t header = sizeof(Header) + parts * 8 + sizeof(Sha256Digest);
  return (header + kPage - 1) / kPage * kPage;
}

Sha256Digest sha256(std::string_view text) {
  Sha256 sum;
  sum.add(text);
  return sum.finish();
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string file_name(const PackedCopies::Key& key) {
  const Sha256Digest digest = sha256(key.name);
  return hex(std::span(digest).first(16)) + ".packed";
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool ok() const { return value_ >= 0; }
  int get() const { return value_; }

 private:
  int value_;
};

// The folder's lock: one writer, or readers while they look at a file. Says why it was not got;
// `busy` where another has it.
std::string lock_folder(const Descriptor& file, int how, const char* busy) {
  if (!file.ok()) return fmt::format("cannot be locked: {}", reason());
  return ::flock(file.get(), how | LOCK_NB) == 0 ? std::string() : busy;
}
int open_lock(int folder, int how) {
  const int file = ::openat(folder, kLockName, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool read_only = file < 0 && (errno == EROFS || errno == EACCES);
  if (!read_only || how != LOCK_SH) return file;
  return ::openat(folder, kLockName, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

std::string wrong_owner(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return "is no regular file";
  if (info.st_uid != ::geteuid()) return "belongs to another user";
  if ((info.st_mode & 07777) != 0600) return "has other permissions than 0600";
  if (info.st_nlink != 1) return "has a second name";
  return {};
}

bool read_all(int file, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool write_all(int file, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return true;
}

std::span<const std::byte> part_of(const Buffer& memory, std::uint64_t part) {
  const std::uint64_t begin = part * kPartBytes;
  return std::span(memory.data() + begin,
                   static_cast<std::size_t>(std::min(kPartBytes, memory.size() - begin)));
}

struct Front {
  Header header;
  std::vector<std::uint64_t> sums;
};

// What stands before the weights; `why` says what is wrong with it.
std::optional<Front> read_front(int file, std::uint64_t size, const PackedCopies::Key& key,
                                std::string& why) {
  Front front;
  const std::uint64_t parts = part_count(key.bytes);
  why = "is cut short or of another model";
  if (size != weights_at(parts) + key.bytes) return std::nullopt;
  std::vector<std::byte> raw(sizeof(Header) + parts * 8 + sizeof(Sha256Digest));
  if (!read_all(file, 0, raw)) return std::nullopt;
  std::memcpy(&front.header, raw.data(), sizeof(Header));
  why = "is of another version";
  if (front.header.magic != kMagic || front.header.version != kVersion) return std::nullopt;
  why = "is damaged";
  const std::size_t summed = raw.size() - sizeof(Sha256Digest);
  Sha256 sum;
  sum.add(std::span<const std::byte>(raw).first(summed));
  const Sha256Digest digest = sum.finish();
  if (std::memcmp(digest.data(), raw.data() + summed, digest.size()) != 0) return std::nullopt;
  why = "is of files that have changed since";
  if (front.header.content != sha256(key.content)) return std::nullopt;
  if (front.header.bytes != key.bytes || front.header.parts != parts) return std::nullopt;
  front.sums.resize(parts);
  std::memcpy(front.sums.data(), raw.data() + sizeof(Header), parts * 8);
  return front;
}

}  // namespace

PackedCopies::PackedCopies(std::string folder, int descriptor, Log log)
    : folder_(std::move(folder)), descriptor_(descriptor), log_(std::move(log)) {}

PackedCopies::~PackedCopies() { ::close(descriptor_); }

Result<std::unique_ptr<PackedCopies>> PackedCopies::open(const std::string& folder, Log log) {
  const auto refuse = [&](const std::string& why) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: cannot keep packed weights here: {}", folder, why));
  };
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return refuse(reason());
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return refuse(reason());
  std::unique_ptr<PackedCopies> copies(new PackedCopies(folder, descriptor, std::move(log)));
  struct stat info{};
  if (::fstat(descriptor, &info) != 0) return refuse(reason());
  if (info.st_uid != ::geteuid()) return refuse("the folder belongs to another user");
  if ((info.st_mode & 022) != 0) return refuse("others may write there; give it the mode 0700");
  return copies;
}

Result<std::optional<PackedCopies::Found>> PackedCopies::find(const Key& key, ThreadPool& pool,
                                                              MemoryLedger& ledger) const {
  const std::string name = file_name(key);
  const auto ignore = [&](std::string_view why) {
    say(fmt::format("packed weights {}/{} are not used: the file {}", folder_, name, why));
    return std::optional<Found>();
  };
  const Descriptor lock(open_lock(descriptor_, LOCK_SH));
  // Nothing was ever kept here, and nothing can be: keep() says why.
  if (!lock.ok() && errno == ENOENT) return std::optional<Found>();
  if (const std::string why = lock_folder(lock, LOCK_SH, "is being written"); !why.empty()) {
    return ignore(why);
  }
  const Descriptor file(
      ::openat(descriptor_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.ok()) return errno == ENOENT ? std::optional<Found>() : ignore("cannot be opened");
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return ignore("cannot be looked at");
  if (const std::string why = wrong_owner(info); !why.empty()) return ignore(why);
  std::string why;
  const auto front = read_front(file.get(), static_cast<std::uint64_t>(info.st_size), key, why);
  if (!front) return ignore(why);
  Result<Buffer> memory = Buffer::map(file.get(), weights_at(front->sums.size()), key.bytes,
                                      MemoryTag::weights, ledger);
  if (!memory.ok()) return memory.status();
  std::atomic<bool> damaged{false};
  pool.run(front->header.parts, [&](unsigned, std::uint32_t part) {
    const auto bytes = part_of(memory.value(), part);
    if (xxh3(bytes) != front->sums[part]) damaged = true;
  });
  if (damaged) return ignore("is damaged");
  return std::optional(Found{std::move(memory).value(), front->header.weights});
}

void PackedCopies::keep(const Key& key, const Buffer& memory, const Sha256Digest& weights,
                        ThreadPool& pool) const {
  const std::string name = file_name(key);
  const auto give_up = [&](std::string_view why) {
    say(fmt::format("packed weights are not kept in {}: {}", folder_, why));
  };
  const Descriptor lock(open_lock(descriptor_, LOCK_EX));
  const std::string locked = lock_folder(lock, LOCK_EX, "another process is writing there");
  if (!locked.empty()) return give_up(locked);
  const std::uint64_t parts = part_count(key.bytes);
  const std::uint64_t begin = weights_at(parts);
  struct statvfs disk{};
  if (::fstatvfs(descriptor_, &disk) == 0 &&
      std::uint64_t{disk.f_bavail} * disk.f_frsize < begin + key.bytes + kSpareBytes) {
    return give_up(
        fmt::format("{} bytes would leave less than {} on the disk", key.bytes, kSpareBytes));
  }
  // Under the lock nobody else has this name in use.
  const std::string unfinished = name + ".new";
  ::unlinkat(descriptor_, unfinished.c_str(), 0);
  const Descriptor file(::openat(descriptor_, unfinished.c_str(),
                                 O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.ok() || ::fchmod(file.get(), 0600) != 0) return give_up(reason());
  std::vector<std::uint64_t> sums(parts);
  std::atomic<int> failure{0};
  pool.run(static_cast<std::uint32_t>(parts), [&](unsigned, std::uint32_t part) {
    const auto bytes = part_of(memory, part);
    sums[part] = xxh3(bytes);
    if (failure == 0 && !write_all(file.get(), begin + part * kPartBytes, bytes)) failure = errno;
  });
  Header header;
  header.parts = static_cast<std::uint32_t>(parts);
  header.content = sha256(key.content);
  header.weights = weights;
  header.bytes = key.bytes;
  std::vector<std::byte> front(begin);
  std::memcpy(front.data(), &header, sizeof header);
  std::memcpy(front.data() + sizeof header, sums.data(), parts * 8);
  const std::size_t summed = sizeof header + parts * 8;
  Sha256 sum;
  sum.add(std::span<const std::byte>(front).first(summed));
  const Sha256Digest digest = sum.finish();
  std::memcpy(front.data() + summed, digest.data(), digest.size());
  if (failure == 0 && !write_all(file.get(), 0, front)) failure = errno;
  if (failure == 0 && ::renameat(descriptor_, unfinished.c_str(), descriptor_, name.c_str()) != 0) {
    failure = errno;
  }
  if (failure == 0) return;
  errno = failure;
  give_up(reason());
  ::unlinkat(descriptor_, unfinished.c_str(), 0);
}

}  // namespace drafthouse
