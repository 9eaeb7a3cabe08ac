#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "drafthouse/status.h"

namespace drafthouse {

class PagePool;

// One page of a pool. Lives as long as the pool; used through PageRef only.
struct Page {
  std::byte* data = nullptr;
  std::atomic<std::uint32_t> references{0};
  std::uint32_t slab = 0;
  std::shared_ptr<PagePool> pool = {};  // set while the page is in use
};

// A share of a page: copies share it, the last one gives it back. Bytes may be written only by
// whoever holds the single reference. Handles may be copied and dropped on any thread, one handle
// on one thread at a time.
class PageRef {
 public:
  PageRef() = default;
  ~PageRef() { reset(); }
  PageRef(const PageRef& other) : page_(other.page_) {
    if (page_ != nullptr) page_->references.fetch_add(1, std::memory_order_relaxed);
  }
  PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }

  explicit operator bool() const { return page_ != nullptr; }
  std::byte* data() const { return page_ != nullptr ? page_->data : nullptr; }
  // Whether nobody else holds the page.
  bool unique() const {
    return page_ != nullptr && page_->references.load(std::memory_order_acquire) == 1;
  }
  std::size_t bytes() const;
  void reset();

 private:
  friend class PagePool;
  explicit PageRef(Page* page) : page_(page) {}

  Page* page_ = nullptr;
};

// Pages of one size, in slabs that come from and go back to the system as they are needed. Always
// held by a shared_ptr; pages in use keep their pool, and its ledger, alive. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  static std::shared_ptr<PagePool> create(std::size_t page_bytes, MemoryTag tag,
                                          std::shared_ptr<MemoryLedger> ledger);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  std::size_t page_bytes() const { return page_bytes_; }
  std::size_t pages_in_use() const { return in_use_.load(std::memory_order_relaxed); }
  MemoryTag tag() const { return tag_; }

  // A page with unspecified contents; no_memory when the budget or the system refuses. No lock is
  // held while the budget is asked, so its relief may give pages of this pool back.
  Result<PageRef> take();
  // Gives slabs without a page in use back to the system; otherwise one is kept for the next
  // take().
  void trim();

 private:
  friend class PageRef;
  struct Slab {
    Buffer memory;
    std::vector<std::unique_ptr<Page>> pages;
    std::vector<Page*> free;
  };

  PagePool(std::size_t page_bytes, MemoryTag tag, std::shared_ptr<MemoryLedger> ledger);
  PageRef take_free();  // empty when there is none; requires lock_
  void give_back(Page* page);

  std::size_t page_bytes_;
  std::size_t slab_pages_;
  MemoryTag tag_;
  std::shared_ptr<MemoryLedger> ledger_;
  std::mutex lock_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // null where a slab has gone
  std::atomic<std::size_t> in_use_{0};
};

}  // namespace drafthouse
