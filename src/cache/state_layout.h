#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace drafthouse {

// Positions per page; the kernels' page layout is built on the same number.
inline constexpr std::uint32_t kPageTokens = 64;

// What the pages of a group hold. Page p, in order of position:
//   attention  keys and values of positions 64p … 64p + 63
//   recurrent  the state of the recurrent layers after position 64p + 63: a checkpoint. Any may be
//              missing; a prefix can be used where the one at its end is there.
//   ring       what recurrent layers need of the positions since 64p until that state is made.
//              Belongs to one sequence, is never shared nor stored.
enum class GroupKind : std::uint8_t { attention, recurrent, ring };

// How far rows of these kinds see: the state at the end of the page before, and their own page.
inline constexpr std::uint32_t kRecurrentReach = kPageTokens + 1;
inline constexpr std::uint32_t kRingReach = 1;

// Layers of one model whose state shares pages and reach.
struct GroupLayout {
  std::size_t page_bytes = 0;
  std::uint32_t reach = 0;  // positions that a row sees back, itself included; 0: all
  bool draft = false;       // of the draft's context, not of the target
  GroupKind kind = GroupKind::attention;
  std::uint32_t sink = 0;  // positions at the beginning that every row sees besides
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

// Pages that hold something of the first `positions` positions.
inline std::uint32_t pages_of(GroupKind kind, std::size_t positions) {
  const std::size_t begun = kind == GroupKind::recurrent ? positions : positions + kPageTokens - 1;
  return static_cast<std::uint32_t>(begun / kPageTokens);
}

// Pages of a sink, which every row sees.
inline std::uint32_t sink_pages(std::uint32_t sink) {
  return (sink + kPageTokens - 1) / kPageTokens;
}

// The first page behind a sink that the row at `position` still sees in a group of this reach.
inline std::uint32_t first_page_seen(std::uint32_t position, std::uint32_t reach) {
  if (reach == 0 || position < reach) return 0;
  return (position - reach + 1) / kPageTokens;
}

}  // namespace drafthouse
