#include "cache/page_store.h"

#include <utility>

namespace drafthouse {

PageStore::PageStore(StateLayout layout, MemoryBudget* budget)
    : layout_(std::move(layout)), ledger_(std::make_shared<MemoryLedger>(budget)) {
  for (const GroupLayout& group : layout_.groups) {
    MemoryTag tag = group.draft ? MemoryTag::draft_pages : MemoryTag::kv_pages;
    if (group.kind != GroupKind::attention) tag = MemoryTag::recurrent;
    pools_.push_back(PagePool::create(group.page_bytes, tag, ledger_));
  }
}

void PageStore::trim() {
  for (const std::shared_ptr<PagePool>& pool : pools_) pool->trim();
}

}  // namespace drafthouse
