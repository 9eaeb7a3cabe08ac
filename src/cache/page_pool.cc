#include "cache/page_pool.h"

#include <algorithm>
#include <cassert>

namespace drafthouse {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSlabBytesMax = std::size_t{16} << 20;

// Pages per slab: the fewest with which less than a twentieth of its huge pages is wasted. Small
// slabs go back to the system sooner.
std::size_t pages_per_slab(std::size_t page_bytes) {
  std::size_t best = 1;
  double best_waste = 1;
  for (std::size_t pages = 1; pages == 1 || pages * page_bytes <= kSlabBytesMax; ++pages) {
    const std::size_t bytes = pages * page_bytes;
    const std::size_t mapped = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    const double waste = 1.0 - static_cast<double>(bytes) / static_cast<double>(mapped);
    if (waste < best_waste) {
      best = pages;
      best_waste = waste;
    }
    if (waste < 0.05) break;
  }
  return best;
}

}  // namespace

std::size_t PageRef::bytes() const { return page_ != nullptr ? page_->pool->page_bytes() : 0; }

void PageRef::reset() {
  Page* page = std::exchange(page_, nullptr);
  if (page == nullptr || page->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // The pool must not go before the page has been given back to it.
  const std::shared_ptr<PagePool> pool = std::move(page->pool);
  pool->give_back(page);
}

std::shared_ptr<PagePool> PagePool::create(std::size_t page_bytes, MemoryTag tag,
                                           std::shared_ptr<MemoryLedger> ledger) {
  return std::shared_ptr<PagePool>(new PagePool(page_bytes, tag, std::move(ledger)));
}

PagePool::PagePool(std::size_t page_bytes, MemoryTag tag, std::shared_ptr<MemoryLedger> ledger)
    : page_bytes_((page_bytes + 63) / 64 * 64),
      slab_pages_(pages_per_slab(page_bytes_)),
      tag_(tag),
      ledger_(std::move(ledger)) {}

PagePool::~PagePool() { assert(in_use_ == 0); }

PageRef PagePool::take_free() {
  // The fullest slab first, so that others become empty.
  Slab* best = nullptr;
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    if (slab == nullptr || slab->free.empty()) continue;
    if (best == nullptr || slab->free.size() < best->free.size()) best = slab.get();
  }
  if (best == nullptr) return {};
  Page* page = best->free.back();
  best->free.pop_back();
  page->references.store(1, std::memory_order_relaxed);
  page->pool = shared_from_this();
  in_use_.fetch_add(1, std::memory_order_relaxed);
  return PageRef(page);
}

Result<PageRef> PagePool::take() {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (PageRef page = take_free(); page) return page;
  }
  const std::size_t bytes = slab_pages_ * page_bytes_;
  if (MemoryBudget* budget = ledger_->budget(); budget != nullptr) {
    // One page is enough, and relief often gives one of this very pool back.
    while (!budget->fits(bytes) && budget->relieve(page_bytes_, *ledger_)) {
      const std::lock_guard<std::mutex> lock(lock_);
      if (PageRef page = take_free(); page) return page;
    }
  }
  Result<Buffer> memory = Buffer::allocate(bytes, tag_, *ledger_);
  const std::lock_guard<std::mutex> lock(lock_);
  if (!memory.ok()) {
    // Relief, or another thread, may have given pages of this very pool back.
    if (PageRef page = take_free(); page) return page;
    return memory.status();
  }
  auto slab = std::make_unique<Slab>();
  slab->memory = std::move(memory).value();
  auto place = std::find(slabs_.begin(), slabs_.end(), nullptr);
  if (place == slabs_.end()) place = slabs_.emplace(slabs_.end());
  const auto index = static_cast<std::uint32_t>(place - slabs_.begin());
  for (std::size_t i = slab_pages_; i-- > 0;) {
    auto page = std::make_unique<Page>();
    page->data = slab->memory.data() + i * page_bytes_;
    page->slab = index;
    slab->free.push_back(page.get());
    slab->pages.push_back(std::move(page));
  }
  *place = std::move(slab);
  return take_free();
}

void PagePool::give_back(Page* page) {
  std::unique_ptr<Slab> gone;  // freed after the lock
  const std::lock_guard<std::mutex> lock(lock_);
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  Slab& slab = *slabs_[page->slab];
  slab.free.push_back(page);
  if (slab.free.size() < slab.pages.size()) return;
  // One empty slab stays for the next take().
  const bool spare = std::any_of(slabs_.begin(), slabs_.end(), [&](const auto& other) {
    return other != nullptr && other.get() != &slab && other->free.size() == other->pages.size();
  });
  if (spare) gone = std::move(slabs_[page->slab]);
}

void PagePool::trim() {
  std::vector<std::unique_ptr<Slab>> gone;
  const std::lock_guard<std::mutex> lock(lock_);
  for (std::unique_ptr<Slab>& slab : slabs_) {
    if (slab != nullptr && slab->free.size() == slab->pages.size()) gone.push_back(std::move(slab));
  }
}

}  // namespace drafthouse
