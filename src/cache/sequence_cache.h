#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "cache/state_layout.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Where a layer group of a sequence takes its pages from.
struct LayerGroup {
  std::shared_ptr<PagePool> pool = {};
  std::uint32_t reach = 0;  // positions that a row sees back, itself included; 0: all
  GroupKind kind = GroupKind::attention;
  std::uint32_t sink = 0;  // positions at the beginning whose pages stay
};

// The state of one sequence for one model of a pair.
//
// Positions are appended in two steps, because a draft block may be refused: extend() reserves room
// past the committed length, and commit() settles it before the next extend().
//
//   committed            pending
//   |--------------------|=======|
//   0               length()   length() + pending()
//
// Dropping pending positions copies nothing: their slots are written again. extend() gives back
// pages that no row to come sees, a page late (kRollbackMax): before it, all that is new can be
// shared.
//
// States of recurrent layers are as large as hundreds of pages, so a sequence keeps the last one,
// the one before while the last commit can be taken back over it, and those that are to be
// checkpoints (want_checkpoints). Where a pass makes more than one state or ring, the inner ones
// share buffers that are gone after it; so no more of the pass than all or nothing can be kept
// then.
//
// Pages whose positions are all committed may be shared with other owners (share(), adopt(),
// fork()); a shared page is copied before it is written. Confined to the engine thread; pages
// return to their pools on destruction, on whichever thread drops them last.
class SequenceCache {
 public:
  // Positions that truncate() may take back whatever the reach of a group. A page, so that at the
  // last page boundary every page in reach is there, to be shared.
  static constexpr std::uint32_t kRollbackMax = kPageTokens;

  // positions_max: what tables are made for, so that they do not grow in a step; 0: unknown.
  explicit SequenceCache(std::vector<LayerGroup> groups, std::uint32_t positions_max = 0);
  SequenceCache(SequenceCache&& other) noexcept = default;
  SequenceCache& operator=(SequenceCache&& other) noexcept = default;
  SequenceCache(const SequenceCache&) = delete;

  std::uint32_t length() const { return length_; }
  std::uint32_t pending() const { return pending_; }

  // Reserves room for `count` more positions, and copies the page they begin in when it is shared.
  // On no_memory nothing that can be seen has changed. Requires pending() == 0.
  Status extend(std::uint32_t count);
  // Keeps the first `accepted` pending positions and forgets the rest. Requires
  // accepted <= pending(), and with recurrent layers all or nothing of more than kRollbackMax.
  void commit(std::uint32_t accepted);
  // Forgets everything from position `length` on. Requires length <= length() and that no group has
  // given back a page that the row at `length` sees; with recurrent layers, positions of the last
  // commit only, of at most kRollbackMax. Pending positions are dropped.
  void truncate(std::uint32_t length);

  // Begins with positions 0 … length − 1 that another sequence computed: pages[group][page], empty
  // or left out where out of reach, or missing. Attention does not see missing pages. Requires an
  // empty cache and a length in whole pages.
  void adopt(std::uint32_t length, std::span<const std::vector<PageRef>> pages);
  // A share of a page; empty where it is out of reach or (in part) missing. Requires that all its
  // positions are committed.
  PageRef share(std::uint32_t group, std::uint32_t page) const;
  // The same committed positions once more; both share all pages. Requires pending() == 0.
  SequenceCache fork() const;

  // From now on keeps the states at the ends of `every` · i pages (0: none) and at the ends of as
  // many pages as `also` has (0: none), for share(), until release_checkpoints(). One for which
  // there is no memory is left out and counted.
  void want_checkpoints(std::uint32_t every, std::array<std::uint32_t, 2> also) {
    every_ = every;
    also_ = also;
  }
  // Whether the state at the end of `page` is one of those, and committed.
  bool is_checkpoint(std::uint32_t page) const;
  // Gives back the ones that the sequence needs no more itself. Returns how many were left out
  // since the last time.
  std::uint64_t release_checkpoints();

  // Pages of a group in order of position; null where out of reach or missing. Invalidated by
  // extend(), commit().
  std::byte* const* pages(std::uint32_t group) const { return tables_[group].data(); }
  std::uint32_t groups() const { return static_cast<std::uint32_t>(groups_.size()); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  // Makes the page that the next position goes to, which holds earlier ones, this sequence's own.
  Status own_open_page(std::size_t group);
  void set_page(std::size_t group, std::size_t page, PageRef ref);
  void push_page(std::size_t group, PageRef ref);
  void push_passing(std::size_t group, const PageRef& buffer);
  Status take_pages(std::size_t group, std::size_t needed);
  Status take_states(std::size_t group, std::size_t needed);
  Status take_states(std::size_t group, std::size_t needed, bool checkpoints);
  bool wants_checkpoint(std::size_t page) const {
    return (every_ != 0 && (page + 1) % every_ == 0) || page + 1 == also_[0] ||
           page + 1 == also_[1];
  }
  // Forgets pages of recurrent groups past the length: their buffers go with the pass.
  void drop_passing();
  // Of the attention groups, or of the others.
  void free_out_of_reach(bool attention);

  std::vector<LayerGroup> groups_;
  std::vector<std::vector<PageRef>> pages_;
  // What pages_ points to, for step tables.
  std::vector<std::vector<std::byte*>> tables_;
  std::vector<std::uint32_t> freed_;  // per group: pages below this index were given back
  std::vector<std::uint32_t>
      torn_;                      // per group: the page that misses its first positions, or kNone
  std::vector<PageRef> passing_;  // buffers of inner states of the pending positions
  std::vector<std::uint32_t> checkpoints_;  // pages whose states are kept, ascending
  std::uint32_t every_ = 0;
  std::array<std::uint32_t, 2> also_{};
  std::uint64_t skipped_ = 0;
  std::uint32_t rollback_ = 0;  // the least that truncate() may go back to with recurrent layers
  std::uint32_t positions_max_ = 0;
  std::uint32_t length_ = 0;
  std::uint32_t pending_ = 0;
};

}  // namespace drafthouse
