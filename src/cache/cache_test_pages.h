#pragma once

// Made-up state for tests of the prefix cache: page bytes are a function of digest seed, group and
// the tokens up to the page's end, so a wrong page is seen.

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cache/page_store.h"
#include "cache/prefix_index.h"

namespace drafthouse {

inline std::vector<std::uint32_t> made_up_tokens(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<std::uint32_t>((seed * 2654435761u + i * 40503u) >> 7) % 50000;
  }
  return tokens;
}

inline std::uint64_t page_mark(std::uint64_t seed, std::size_t group,
                               std::span<const std::uint32_t> prefix) {
  std::uint64_t mark = seed * 1000003u + group;
  for (const std::uint32_t token : prefix) mark = (mark ^ token) * 1099511628211u;
  return mark;
}

// Pages [0, tokens / 64) of every group, null where the row after them does not see.
inline PrefixPages made_up_pages(PageStore& store, std::uint64_t seed,
                                 std::span<const std::uint32_t> tokens) {
  const auto& groups = store.layout().groups;
  const std::size_t count = tokens.size() / kPageTokens;
  PrefixPages pages(groups.size(), std::vector<PageRef>(count));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::uint32_t seen =
        first_page_seen(static_cast<std::uint32_t>(count * kPageTokens), groups[g].reach);
    for (std::size_t p = seen; p < count; ++p) {
      pages[g][p] = store.pool(g)->take().value();
      const std::uint64_t mark = page_mark(seed, g, tokens.first((p + 1) * kPageTokens));
      std::memcpy(pages[g][p].data(), &mark, sizeof mark);
    }
  }
  return pages;
}

inline bool page_is(const PageRef& page, std::uint64_t seed, std::size_t group,
                    std::span<const std::uint32_t> prefix) {
  const std::uint64_t mark = page_mark(seed, group, prefix);
  return page && std::memcmp(page.data(), &mark, sizeof mark) == 0;
}

}  // namespace drafthouse
