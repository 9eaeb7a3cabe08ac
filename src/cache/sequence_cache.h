#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/page_pool.h"
#include "cache/state_layout.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Where a layer group of a sequence takes its pages from.
struct LayerGroup {
  std::shared_ptr<PagePool> pool = {};
  std::uint32_t reach = 0;  // positions that a row sees back, itself included; 0: all
};

// The attention state of one sequence for one model of a pair.
//
// Positions are appended in two steps, because a draft block may be refused: extend() reserves room
// past the committed length, and commit() settles it before the next extend().
//
//   committed            pending
//   |--------------------|=======|
//   0               length()   length() + pending()
//
// Dropping pending positions copies nothing: their slots are written again. Pages that no row which
// can still come sees any more are given back. Confined to the engine thread; pages return to their
// pools on destruction.
class SequenceCache {
 public:
  explicit SequenceCache(std::vector<LayerGroup> groups);
  SequenceCache(SequenceCache&& other) noexcept = default;
  SequenceCache& operator=(SequenceCache&&) = delete;
  SequenceCache(const SequenceCache&) = delete;

  std::uint32_t length() const { return length_; }
  std::uint32_t pending() const { return pending_; }

  // Reserves room for `count` more positions. On no_memory nothing has changed. Requires
  // pending() == 0.
  Status extend(std::uint32_t count);
  // Keeps the first `accepted` pending positions and forgets the rest. Requires
  // accepted <= pending().
  void commit(std::uint32_t accepted);
  // Forgets everything from position `length` on. Requires length <= length() and that no group has
  // given back a page below it that its reach needs. Pending positions are dropped.
  void truncate(std::uint32_t length);

  // Pages of a group in order of position; null where out of reach. Invalidated by extend(), commit().
  std::byte* const* pages(std::uint32_t group) const { return tables_[group].data(); }
  std::uint32_t groups() const { return static_cast<std::uint32_t>(groups_.size()); }

 private:
  void free_out_of_reach();
  void drop_page(std::size_t group, std::size_t page);

  std::vector<LayerGroup> groups_;
  std::vector<std::vector<PageRef>> pages_;
  // What pages_ points to, for step tables.
  std::vector<std::vector<std::byte*>> tables_;
  std::vector<std::uint32_t> freed_;  // per group: pages below this index were given back
  std::uint32_t length_ = 0;
  std::uint32_t pending_ = 0;
};

}  // namespace drafthouse
