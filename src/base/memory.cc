#include "base/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <cstdio>
#include <cstring>
#include <utility>

namespace drafthouse {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kHugeFrom = std::size_t{1} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t status_field(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  std::size_t kib = 0;
  const std::size_t length = std::strlen(name);
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, length) == 0) {
      if (std::sscanf(line + length, ": %zu", &kib) != 1) kib = 0;
      break;
    }
  }
  std::fclose(file);
  return kib * 1024;
}

}  // namespace

std::string_view name_of(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::weights: return "weights";
    case MemoryTag::kv_pages: return "kv_pages";
    case MemoryTag::draft_pages: return "draft_pages";
    case MemoryTag::recurrent: return "recurrent";
    case MemoryTag::activations: return "activations";
    case MemoryTag::taps: return "taps";
    case MemoryTag::text: return "text";
  }
  return "?";
}

std::size_t MemoryLedger::total() const {
  std::size_t sum = 0;
  for (const auto& bytes : bytes_) sum += bytes.load(std::memory_order_relaxed);
  return sum;
}

MemoryLedger::~MemoryLedger() {
  if (budget_ != nullptr) budget_->give_back(total());
}

Status MemoryLedger::reserve(MemoryTag tag, std::size_t bytes) {
  if (budget_ != nullptr) {
    if (Status s = budget_->reserve(bytes, name_of(tag), *this); !s.ok()) return s;
  }
  slot(tag) += bytes;
  return {};
}

void MemoryLedger::remove(MemoryTag tag, std::size_t bytes) {
  slot(tag) -= bytes;
  if (budget_ != nullptr) budget_->give_back(bytes);
}

Buffer::~Buffer() { release(); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      tag_(other.tag_),
      ledger_(std::exchange(other.ledger_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapped_ = std::exchange(other.mapped_, 0);
    tag_ = other.tag_;
    ledger_ = std::exchange(other.ledger_, nullptr);
  }
  return *this;
}

void Buffer::release() {
  if (data_ == nullptr) return;
  munmap(data_, mapped_);
  ledger_->remove(tag_, size_);
  data_ = nullptr;
}

Result<Buffer> Buffer::allocate(std::size_t bytes, MemoryTag tag, MemoryLedger& ledger) {
  const bool huge = bytes >= kHugeFrom;
  // A huge-page buffer is cut out of a mapping one huge page larger, so that it starts on one.
  const std::size_t wanted = huge ? round_up(bytes, kHugePage) : round_up(bytes + 1, 4096);
  const std::size_t mapped = huge ? wanted + kHugePage : wanted;
  if (mapped > bytes) {
    if (Status s = ledger.reserve(tag, bytes); !s.ok()) return s;
  }
  void* base = MAP_FAILED;
  if (mapped > bytes) {
    base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (base == MAP_FAILED) {
    if (mapped > bytes) ledger.remove(tag, bytes);
    return Status(Code::no_memory,
                  fmt::format("cannot allocate {} bytes for {}: the system refused; "
                              "free memory or choose a smaller model",
                              bytes, name_of(tag)));
  }
  auto* start = static_cast<std::byte*>(base);
  if (huge) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    const std::size_t skip = round_up(address, kHugePage) - address;
    if (skip > 0) munmap(start, skip);
    start += skip;
    if (kHugePage - skip > 0) munmap(start + wanted, kHugePage - skip);
    madvise(start, wanted, MADV_HUGEPAGE);
  }
  Buffer buffer;
  buffer.data_ = start;
  buffer.size_ = bytes;
  buffer.mapped_ = wanted;
  buffer.tag_ = tag;
  buffer.ledger_ = &ledger;
  return buffer;
}

Result<Buffer> Buffer::map(int file, std::uint64_t offset, std::size_t bytes, MemoryTag tag,
                           MemoryLedger& ledger) {
  if (Status s = ledger.reserve(tag, bytes); !s.ok()) return s;
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, static_cast<off_t>(offset));
  if (base == MAP_FAILED) {
    ledger.remove(tag, bytes);
    return Status(Code::no_memory, fmt::format("cannot map {} bytes for {}: the system refused",
                                               bytes, name_of(tag)));
  }
  madvise(base, bytes, MADV_WILLNEED);
  Buffer buffer;
  buffer.data_ = static_cast<std::byte*>(base);
  buffer.size_ = bytes;
  buffer.mapped_ = bytes;
  buffer.tag_ = tag;
  buffer.ledger_ = &ledger;
  return buffer;
}

std::size_t resident_bytes() { return status_field("VmRSS"); }
void trim_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

std::size_t resident_bytes_peak() { return status_field("VmHWM"); }

}  // namespace drafthouse
