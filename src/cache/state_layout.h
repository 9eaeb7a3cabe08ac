#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace drafthouse {

// Positions per page; the kernels' page layout is built on the same number.
inline constexpr std::uint32_t kPageTokens = 64;

// Layers of one model whose keys and values share pages and reach.
struct GroupLayout {
  std::size_t page_bytes = 0;
  std::uint32_t reach = 0;  // positions that a row sees back, itself included; 0: all
  bool draft = false;       // of the draft's context, not of the target
};

// The layer groups of a pair: the target's, then the draft's.
struct StateLayout {
  std::vector<GroupLayout> groups = {};

  std::uint32_t target_groups() const {
    std::uint32_t count = 0;
    while (count < groups.size() && !groups[count].draft) ++count;
    return count;
  }
};

// The first page that the row at `position` still sees in a group of this reach.
inline std::uint32_t first_page_seen(std::uint32_t position, std::uint32_t reach) {
  if (reach == 0 || position < reach) return 0;
  return (position - reach + 1) / kPageTokens;
}

}  // namespace drafthouse
