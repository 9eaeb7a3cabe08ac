#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/memory_budget.h"
#include "drafthouse/status.h"

namespace drafthouse {

// What a byte is for. Every large allocation carries one, so use can be shown by cause.
enum class MemoryTag : std::uint8_t {
  weights,
  kv_pages,
  draft_pages,
  recurrent,
  activations,
  taps,
  text
};
inline constexpr std::size_t kMemoryTags = 7;

std::string_view name_of(MemoryTag tag);

// Bytes in use by tag, each reserved in the budget (may be null) before it is allocated.
// Thread-safe.
class MemoryLedger {
 public:
  explicit MemoryLedger(MemoryBudget* budget = nullptr) : budget_(budget) {}
  ~MemoryLedger();
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  // no_memory when the budget refuses; then nothing has changed.
  Status reserve(MemoryTag tag, std::size_t bytes);
  void remove(MemoryTag tag, std::size_t bytes);
  MemoryBudget* budget() const { return budget_; }
  std::size_t bytes(MemoryTag tag) const {
    return bytes_[static_cast<std::size_t>(tag)].load(std::memory_order_relaxed);
  }
  std::size_t total() const;

 private:
  std::atomic<std::size_t>& slot(MemoryTag tag) { return bytes_[static_cast<std::size_t>(tag)]; }

  MemoryBudget* budget_;
  std::array<std::atomic<std::size_t>, kMemoryTags> bytes_{};
};

// Owned memory, zero-filled, aligned to 64 bytes (to 2 MiB and advised to huge pages from 1 MiB
// up). Counted in a ledger that must outlive it. Move-only; confined to whoever holds it.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // no_memory when the budget or the system refuses; the message names the tag and the size.
  static Result<Buffer> allocate(std::size_t bytes, MemoryTag tag, MemoryLedger& ledger);

  // The bytes of an open file from `offset` on, a multiple of the page size, read-only: writing
  // there ends the process. The file may be closed, and must not be cut or changed, while the
  // buffer lives.
  static Result<Buffer> map(int file, std::uint64_t offset, std::size_t bytes, MemoryTag tag,
                            MemoryLedger& ledger);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  void release();

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
  MemoryTag tag_ = MemoryTag::weights;
  MemoryLedger* ledger_ = nullptr;
};

// Resident set size of this process now, and its peak (VmRSS, VmHWM), in bytes; 0 where unknown.
std::size_t resident_bytes();
std::size_t resident_bytes_peak();

// Gives what the heap keeps of freed memory back to the system, where the C library can. Takes
// milliseconds: for after something large has gone.
void trim_heap();

}  // namespace drafthouse
