#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/disk/stored_run.h"
#include "cache/state_layout.h"

namespace drafthouse {

// Where one page of one group is stored.
struct PagePlace {
  std::shared_ptr<StoredRun> run = {};  // null: nowhere, or out of reach
  std::uint32_t slot = 0;               // in the run's file of that group
};

struct IndexMatch {
  std::uint32_t known = 0;  // pages whose tokens are known
  std::uint32_t pages = 0;  // of these, the longest prefix that can be read back
  std::vector<std::vector<PagePlace>> places = {};  // [group][page]
  std::shared_ptr<StoredRun> deepest = {};          // the run that was used last on the way
  std::uint32_t equal_tokens = 0;                   // of the page after the known ones, at best
  bool root_known = false;
};

// A page of one group that a prefix needs and that is not stored.
struct MissingPage {
  std::uint32_t page = 0;
  std::uint32_t group = 0;
};

// The stored runs of one digest as a tree of pages per root. A run hangs from the page before its
// first one; it may be removed once nothing hangs from its own pages. The tokens of a page are
// compared on every use. Not thread-safe.
class DiskIndex {
 public:
  DiskIndex();
  ~DiskIndex();
  DiskIndex(const DiskIndex&) = delete;
  DiskIndex& operator=(const DiskIndex&) = delete;

  // False when the page before its first one is unknown, or a run of this id is there.
  bool insert(std::shared_ptr<StoredRun> run);
  // With all that hangs from it; what was removed, leaves first. Empty when it is not there.
  std::vector<std::shared_ptr<StoredRun>> remove(const RootName& root, const RunId& id);
  void clear();

  std::shared_ptr<StoredRun> run(const RunId& id) const;
  bool is_leaf(const StoredRun& run) const;
  // A run that holds the page of this address.
  std::shared_ptr<StoredRun> run_at(const RootName& root, const PageAddress& address) const;
  // The run that holds the page before `run`, when there is one.
  std::shared_ptr<StoredRun> parent_of(const StoredRun& run) const;
  // The leaf that was used longest ago and that nobody holds.
  std::shared_ptr<StoredRun> oldest_leaf() const;
  void for_each(const std::function<void(const std::shared_ptr<StoredRun>&)>& call) const;
  std::size_t runs() const { return runs_.size(); }
  // Whose tokens are known.
  std::size_t pages() const;
  std::uint64_t charged() const { return charged_; }
  // Memory that the index takes, about.
  std::size_t memory_bytes() const { return memory_bytes_; }

  // Whole pages of `tokens` only. Target groups need all that the row after them sees; of a draft's
  // context whatever is stored is of use, and none of it is left out for being out of reach.
  IndexMatch find(const RootName& root, std::span<const std::uint32_t> tokens,
                  const StateLayout& layout) const;
  // What the prefix of all whole pages needs and has not, in order of page. Of a draft's context
  // every page: any may be in reach of a prompt that leaves this one earlier.
  std::vector<MissingPage> missing(const RootName& root, std::span<const std::uint32_t> tokens,
                                   const StateLayout& layout) const;
  // Leading pages whose tokens are known.
  std::uint32_t known(const RootName& root, std::span<const std::uint32_t> tokens) const;

 private:
  struct Node;
  struct Root;
  struct Held;  // a run with its place in the tree

  Node* child(const Node& parent, std::span<const std::uint32_t> tokens) const;
  void add_pages(Held& held);
  void take_out(Held& held);

  std::unordered_map<RootName, std::unique_ptr<Root>, HexNameHash<16>> roots_;
  std::unordered_map<RunId, std::unique_ptr<Held>, HexNameHash<16>> runs_;
  std::uint64_t charged_ = 0;
  std::size_t memory_bytes_ = 0;
};

}  // namespace drafthouse
