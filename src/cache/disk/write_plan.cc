#include "cache/disk/write_plan.h"

#include <algorithm>
#include <utility>

#include "cache/disk/hashing.h"

namespace drafthouse {
namespace {

std::span<const std::uint32_t> page_tokens(const DiskSnapshot& snapshot, std::uint32_t page) {
  return std::span(snapshot.tokens).subspan(std::size_t{page} * kPageTokens, kPageTokens);
}

WritePlan plan_run(const StateDigest& digest, const RootName& root, const StateLayout& layout,
                   const DiskSnapshot& snapshot, std::uint32_t first,
                   std::span<const MissingPage> missing) {
  WritePlan plan;
  RunRecord& record = plan.record;
  record.digest = digest;
  record.root = root;
  record.first = first;
  const std::uint32_t end = std::min(missing.back().page + 1, first + kRunPagesMax);
  record.tokens.assign(snapshot.tokens.begin() + std::size_t{record.first} * kPageTokens,
                       snapshot.tokens.begin() + std::size_t{end} * kPageTokens);
  if (end == snapshot.whole_pages()) {
    record.tail.assign(snapshot.tokens.begin() + std::size_t{end} * kPageTokens,
                       snapshot.tokens.end());
  }
  for (const GroupLayout& group : layout.groups) record.groups.push_back({group.page_bytes, {}});
  plan.pages.resize(layout.groups.size());
  for (const MissingPage& page : missing) {
    if (page.page >= end) break;
    record.groups[page.group].pages.push_back({page.page, 0});
    plan.pages[page.group].push_back(snapshot.pages[page.group][page.page]);
  }
  return plan;
}

}  // namespace

std::vector<WritePlan> plan_writes(const StateDigest& digest, const RootName& root,
                                   const StateLayout& layout, const DiskSnapshot& snapshot,
                                   const MissingPart& missing, std::size_t run_bytes) {
  const std::vector<MissingPage>& pages = missing.pages;
  std::vector<WritePlan> plans;
  PageAddress address;  // of the page before `hashed`
  std::uint32_t hashed = 0;
  std::uint32_t known = missing.known;
  std::size_t begin = 0;
  while (begin < pages.size()) {
    const std::uint32_t first = std::min(known, pages[begin].page);
    std::size_t bytes = 0;
    std::size_t end = begin;
    while (end < pages.size()) {
      // All groups of a page together.
      std::size_t next = end;
      std::size_t page_bytes = 0;
      for (; next < pages.size() && pages[next].page == pages[end].page; ++next) {
        page_bytes += layout.groups[pages[next].group].page_bytes;
      }
      const bool full = bytes + page_bytes > run_bytes || pages[end].page - first >= kRunPagesMax;
      if (end > begin && full) break;
      bytes += page_bytes;
      end = next;
    }
    plans.push_back(plan_run(digest, root, layout, snapshot, first,
                             std::span(pages).subspan(begin, end - begin)));
    RunRecord& record = plans.back().record;
    for (; hashed < record.first; ++hashed) {
      address = page_address(address, page_tokens(snapshot, hashed));
    }
    record.parent = address;
    name_run(record);
    known = std::max(known, record.end());
    // A run of tokens alone leads towards pages that are far away.
    if (pages[begin].page < record.end()) begin = end;
  }
  return plans;
}

}  // namespace drafthouse
