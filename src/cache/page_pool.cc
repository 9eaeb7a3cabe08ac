#include "cache/page_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace drafthouse {
namespace {

// One slab is about this large, so that it is worth huge pages.
constexpr std::size_t kSlabBytes = std::size_t{16} << 20;

}  // namespace

PagePool::PagePool(std::size_t page_bytes, std::size_t pages_max, MemoryTag tag,
                   MemoryLedger& ledger)
    : page_bytes_((page_bytes + 63) / 64 * 64), pages_max_(pages_max), tag_(tag), ledger_(ledger) {}

Result<std::byte*> PagePool::take() {
  if (free_.empty()) {
    if (allocated_ == pages_max_) {
      return Status(Code::no_memory, fmt::format("all {} pages of {} bytes are in use", pages_max_,
                                                 page_bytes_));
    }
    const std::size_t wanted =
        std::min(std::max<std::size_t>(1, kSlabBytes / page_bytes_), pages_max_ - allocated_);
    Result<Buffer> slab = Buffer::allocate(wanted * page_bytes_, tag_, ledger_);
    if (!slab.ok()) return slab.status();
    for (std::size_t i = wanted; i-- > 0;) free_.push_back(slab.value().data() + i * page_bytes_);
    slabs_.push_back(std::move(slab).value());
    allocated_ += wanted;
    free_.reserve(allocated_);
  }
  std::byte* page = free_.back();
  free_.pop_back();
  ++in_use_;
  return page;
}

void PagePool::give_back(std::byte* page) {
  assert(in_use_ > 0);
  --in_use_;
  free_.push_back(page);
}

}  // namespace drafthouse
