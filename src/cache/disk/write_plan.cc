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
                   const DiskSnapshot& snapshot, std::span<const MissingPage> missing) {
  WritePlan plan;
  RunRecord& record = plan.record;
  record.digest = digest;
  record.root = root;
  record.first = missing.front().page;
  const std::uint32_t end = missing.back().page + 1;
  record.tokens.assign(snapshot.tokens.begin() + std::size_t{record.first} * kPageTokens,
                       snapshot.tokens.begin() + std::size_t{end} * kPageTokens);
  if (end == snapshot.whole_pages()) {
    record.tail.assign(snapshot.tokens.begin() + std::size_t{end} * kPageTokens,
                       snapshot.tokens.end());
  }
  for (const GroupLayout& group : layout.groups) record.groups.push_back({group.page_bytes, {}});
  plan.pages.resize(layout.groups.size());
  for (const MissingPage& page : missing) {
    record.groups[page.group].pages.push_back({page.page, 0});
    plan.pages[page.group].push_back(snapshot.pages[page.group][page.page]);
  }
  return plan;
}

}  // namespace

std::vector<WritePlan> plan_writes(const StateDigest& digest, const RootName& root,
                                   const StateLayout& layout, const DiskSnapshot& snapshot,
                                   const std::vector<MissingPage>& missing, std::size_t run_bytes) {
  std::vector<WritePlan> plans;
  PageAddress address;  // of the page before `hashed`
  std::uint32_t hashed = 0;
  std::size_t begin = 0;
  while (begin < missing.size()) {
    std::size_t bytes = 0;
    std::size_t end = begin;
    while (end < missing.size()) {
      // All groups of a page together.
      std::size_t next = end;
      std::size_t page_bytes = 0;
      for (; next < missing.size() && missing[next].page == missing[end].page; ++next) {
        page_bytes += layout.groups[missing[next].group].page_bytes;
      }
      const bool full =
          bytes + page_bytes > run_bytes || missing[end].page - missing[begin].page >= kRunPagesMax;
      if (end > begin && full) break;
      bytes += page_bytes;
      end = next;
    }
    plans.push_back(
        plan_run(digest, root, layout, snapshot, std::span(missing).subspan(begin, end - begin)));
    RunRecord& record = plans.back().record;
    for (; hashed < record.first; ++hashed) {
      address = page_address(address, page_tokens(snapshot, hashed));
    }
    record.parent = address;
    name_run(record);
    begin = end;
  }
  return plans;
}

}  // namespace drafthouse
