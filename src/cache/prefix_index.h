#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/page_pool.h"
#include "cache/state_layout.h"

namespace drafthouse {

// Pages of a prefix: [layer group][page], null where a page is out of reach or missing.
using PrefixPages = std::vector<std::vector<PageRef>>;

// The RAM tier's radix tree. A node is one page of 64 tokens below the node of the page before it,
// so prompts with a common beginning share nodes. Every salt has a root of its own. The tokens of a
// node are compared on every use; a hash alone never matches.
//
// Nodes leave by value: (time to recompute × chance of reuse) ÷ bytes that this frees, leaves
// first, kept as a greedy-dual score whose floor rises with every eviction, so old uses fade.
// (Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy",
// 1998.)
//
// Before a leaf goes, what a hit at the end of its text does not need goes from the nodes above it,
// the first ones first: pages of sliding layers and of the draft's context that have left their
// reach, and the checkpoints of recurrent layers but the last one. They serve prompts that leave
// the text earlier. Where texts part, a hit is expected as at an end.
//
// Not thread-safe: its manager locks.
class PrefixIndex {
 public:
  explicit PrefixIndex(StateLayout layout);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  struct Found {
    std::uint32_t pages = 0;        // that can be used; a whole prefix of the tokens
    std::uint32_t known = 0;        // whose tokens are known, whether or not they can be used
    std::uint32_t draft_begin = 0;  // first page of which the draft's context is there; pages: none
    PrefixPages shared = {};        // of every group, [0, pages)
    std::string why_not_more = {};  // why not pages_max
  };
  // The longest usable prefix of `tokens`, of at most `pages_max` pages. `use` counts it for
  // eviction.
  Found find(std::string_view salt, std::span<const std::uint32_t> tokens, std::uint32_t pages_max,
             bool use);

  // Adds pages [0, pages.front().size()) of a prefix; pages that are there already stay as they
  // are. `admit(bytes)` is asked before each new page and may call evict(). When it says no, what
  // the end of the prefix does not need makes room; when there is no more of that, the insertion
  // ends. Returns how many pages are stored afterwards, from the beginning.
  template <class Admit>
  std::uint32_t insert(std::string_view salt, std::span<const std::uint32_t> tokens,
                       const PrefixPages& pages, Admit&& admit);

  // Draft pages that are stored of a prefix, put where `pages` lacks them.
  void complete_draft(std::string_view salt, std::span<const std::uint32_t> tokens,
                      PrefixPages& pages) const;

  // Frees the least valuable leaf whose pages nobody else holds, or first something of the nodes
  // above it, and returns its bytes; 0 when there is none.
  std::size_t evict();
  // Score of what evict() would take; infinity when nothing can go.
  double cheapest() const;

  // Pinned prefixes do not leave. Returns how many pages it reached.
  std::uint32_t pin(std::string_view salt, std::span<const std::uint32_t> tokens, bool on);
  // Drops a namespace, or all of them; pinned nodes too. Returns bytes dropped.
  std::size_t clear(std::string_view salt);
  std::size_t clear();
  // Takes over all nodes, with their uses and pins, of an index with the same target layout. Draft
  // pages come along only when `with_draft`. Requires an empty index.
  void adopt(PrefixIndex& other, bool with_draft);

  std::size_t bytes() const { return bytes_; }  // of pages held, shared ones included
  std::size_t nodes() const { return nodes_; }
  std::uint64_t evictions() const { return evictions_; }
  // Every stored prefix from root to leaf: for writing to disk what it lacks.
  struct Leaf {
    std::string salt;
    std::vector<std::uint32_t> tokens;
    PrefixPages pages;
  };
  std::vector<Leaf> leaves() const;

 private:
  struct Node;
  struct Root;

  Node* child(const Node* parent, std::uint64_t hash, const std::uint32_t* tokens) const;
  Node* grow(Node* parent, std::uint64_t hash, const std::uint32_t* tokens);
  Root* root(std::string_view salt, bool make);
  void used(Node* node);
  void rank(Node* node);  // (re)enters a leaf into the order of eviction
  void unrank(Node* node);
  // Takes the pages of the first node on the way to `end` that has some which no hit needs: neither
  // one at `end` nor one where texts part before it. Only of nodes with `pins` pins; with `alone`
  // only pages that nobody else holds. Returns their bytes.
  std::size_t thin(Node* end, std::uint32_t pins, bool alone);
  bool is_checkpoint(const Node* node) const;
  void remove(Node* node);
  void remove_below(Node* node);
  std::size_t store(Node* node, std::size_t group, const PageRef& page);
  std::size_t missing_bytes(const Node* node, const PrefixPages& pages, std::size_t page) const;
  std::string explain(const Node* last, std::uint64_t next_hash,
                      std::span<const std::uint32_t> tokens, std::uint32_t pages) const;
  void remember_eviction(std::uint64_t hash);
  bool was_evicted(std::uint64_t hash) const;

  StateLayout layout_;
  std::map<std::string, std::unique_ptr<Root>, std::less<>> roots_;
  std::unordered_multimap<std::uint64_t, Node*> by_hash_;
  // Score, then the older use first.
  std::set<std::tuple<double, std::uint64_t, Node*>> order_;
  std::uint64_t uses_ = 0;
  std::vector<std::uint64_t> evicted_;  // hashes of nodes that left, by their low bits
  double floor_ = 0;
  std::size_t bytes_ = 0;
  std::size_t nodes_ = 0;
  std::uint64_t evictions_ = 0;
};

struct PrefixIndex::Node {
  std::uint64_t hash = 0;   // of the whole prefix
  std::uint32_t depth = 0;  // pages before this one
  std::uint32_t pins = 0;
  std::uint64_t uses = 0;
  std::uint64_t last_use = 0;
  double floor = 0;  // of the index at its last use
  double score = 0;
  bool ranked = false;
  Node* parent = nullptr;
  std::vector<std::unique_ptr<Node>> children;
  std::vector<std::uint32_t> tokens;  // kPageTokens
  std::vector<PageRef> pages;         // one per group, null where missing
};

struct PrefixIndex::Root {
  Node node;
};

// Hash of a prefix that is one page longer than the one with hash `parent`.
std::uint64_t extend_prefix_hash(std::uint64_t parent, const std::uint32_t* page_tokens);
// Hash of the empty prefix of a namespace.
std::uint64_t root_prefix_hash(std::string_view salt);

template <class Admit>
std::uint32_t PrefixIndex::insert(std::string_view salt, std::span<const std::uint32_t> tokens,
                                  const PrefixPages& pages, Admit&& admit) {
  const auto count = static_cast<std::uint32_t>(pages.front().size());
  Node* node = &root(salt, true)->node;
  // What has been inserted must not be evicted to make room for what follows.
  std::vector<Node*> held;
  std::uint32_t done = 0;
  for (; done < count; ++done) {
    const std::uint32_t* page_tokens = tokens.data() + std::size_t{done} * kPageTokens;
    const std::uint64_t hash = extend_prefix_hash(node->hash, page_tokens);
    Node* next = child(node, hash, page_tokens);
    const std::size_t wanted = missing_bytes(next, pages, done);
    ++node->pins;
    held.push_back(node);
    unrank(node);
    if (wanted > 0) {
      // It may be a leaf that only lacks some groups' pages: making room must not take it.
      if (next != nullptr) {
        ++next->pins;
        unrank(next);
      }
      bool admitted = admit(wanted);
      while (!admitted && thin(node, 1, false) > 0) admitted = admit(wanted);
      if (next != nullptr) {
        --next->pins;
        rank(next);
      }
      if (!admitted) break;
    }
    if (next == nullptr) next = grow(node, hash, page_tokens);
    for (std::size_t group = 0; group < pages.size(); ++group) {
      store(next, group, pages[group][done]);
    }
    used(next);
    node = next;
  }
  for (Node* each : held) {
    --each->pins;
    rank(each);
  }
  rank(node);
  return done;
}

}  // namespace drafthouse
