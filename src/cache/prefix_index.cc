#include "cache/prefix_index.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

namespace drafthouse {
namespace {

constexpr std::size_t kEvictedRemembered = 1 << 14;
// Children looked at for an explanation.
constexpr std::size_t kChildrenCompared = 256;
constexpr std::size_t kPageTokenBytes = kPageTokens * sizeof(std::uint32_t);

}  // namespace

std::uint64_t extend_prefix_hash(std::uint64_t parent, const std::uint32_t* page_tokens) {
  return XXH3_64bits_withSeed(page_tokens, kPageTokenBytes, parent);
}

std::uint64_t root_prefix_hash(std::string_view salt) {
  return XXH3_64bits_withSeed(salt.data(), salt.size(), 1);
}

PrefixIndex::PrefixIndex(StateLayout layout)
    : layout_(std::move(layout)), evicted_(kEvictedRemembered, 0) {}

PrefixIndex::~PrefixIndex() { clear(); }

PrefixIndex::Root* PrefixIndex::root(std::string_view salt, bool make) {
  const auto place = roots_.find(salt);
  if (place != roots_.end()) return place->second.get();
  if (!make) return nullptr;
  auto made = std::make_unique<Root>();
  made->node.hash = root_prefix_hash(salt);
  return roots_.emplace(std::string(salt), std::move(made)).first->second.get();
}

PrefixIndex::Node* PrefixIndex::child(const Node* parent, std::uint64_t hash,
                                      const std::uint32_t* tokens) const {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto place = first; place != last; ++place) {
    Node* node = place->second;
    if (node->parent == parent && std::memcmp(node->tokens.data(), tokens, kPageTokenBytes) == 0) {
      return node;
    }
  }
  return nullptr;
}

PrefixIndex::Node* PrefixIndex::grow(Node* parent, std::uint64_t hash,
                                     const std::uint32_t* tokens) {
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->hash = hash;
  node->parent = parent;
  node->depth = parent->parent == nullptr ? 0 : parent->depth + 1;
  node->tokens.assign(tokens, tokens + kPageTokens);
  node->pages.resize(layout_.groups.size());
  node->uses = 1;
  parent->children.push_back(std::move(made));
  by_hash_.emplace(hash, node);
  ++nodes_;
  return node;
}

std::size_t PrefixIndex::missing_bytes(const Node* node, const PrefixPages& pages,
                                       std::size_t page) const {
  std::size_t bytes = 0;
  for (std::size_t group = 0; group < pages.size(); ++group) {
    if (pages[group][page] && (node == nullptr || !node->pages[group])) {
      bytes += pages[group][page].bytes();
    }
  }
  return bytes;
}

std::size_t PrefixIndex::store(Node* node, std::size_t group, const PageRef& page) {
  if (!page || node->pages[group]) return 0;
  node->pages[group] = page;
  bytes_ += page.bytes();
  return page.bytes();
}

void PrefixIndex::used(Node* node) {
  unrank(node);
  node->last_use = ++uses_;
  node->floor = floor_;
  rank(node);
}

void PrefixIndex::rank(Node* node) {
  if (node->parent == nullptr || !node->children.empty() || node->pins > 0) return;
  unrank(node);
  std::size_t bytes = 1;
  for (const PageRef& page : node->pages) bytes += page.bytes();
  // Recomputing a page costs its matrix products and attention over all pages before it.
  const double cost = 1.0 + static_cast<double>(node->depth) / 256.0;
  const double reuse = 1.0 + std::min(8.0, static_cast<double>(node->uses) * 0.25);
  node->score = node->floor + cost * reuse / static_cast<double>(bytes) * 1e6;
  node->ranked = true;
  order_.emplace(node->score, node->last_use, node);
}

void PrefixIndex::unrank(Node* node) {
  if (!node->ranked) return;
  order_.erase({node->score, node->last_use, node});
  node->ranked = false;
}

PrefixIndex::Found PrefixIndex::find(std::string_view salt, std::span<const std::uint32_t> tokens,
                                     std::uint32_t pages_max, bool use) {
  Found found;
  found.shared.resize(layout_.groups.size());
  const std::size_t targets = layout_.target_groups();
  Root* from = root(salt, false);
  std::vector<Node*> path;
  const Node* last = from == nullptr ? nullptr : &from->node;
  std::uint64_t hash = root_prefix_hash(salt);
  std::uint32_t page = 0;
  for (; page < pages_max; ++page) {
    const std::uint32_t* page_tokens = tokens.data() + std::size_t{page} * kPageTokens;
    hash = extend_prefix_hash(hash, page_tokens);
    Node* next = last == nullptr ? nullptr : child(last, hash, page_tokens);
    if (next == nullptr) break;
    path.push_back(next);
    last = next;
  }
  if (page < pages_max) found.why_not_more = explain(last, hash, tokens, page);

  // The longest length at which every target group has the pages that the next row sees.
  std::uint32_t pages = page;
  found.known = page;
  for (; pages > 0; --pages) {
    bool usable = true;
    bool checkpoint = true;
    for (std::size_t group = 0; group < targets && usable; ++group) {
      const std::uint32_t seen = first_page_seen(pages * kPageTokens, layout_.groups[group].reach);
      for (std::uint32_t i = seen; i < pages && usable; ++i) {
        usable = static_cast<bool>(path[i]->pages[group]);
        checkpoint = usable || layout_.groups[group].kind != GroupKind::recurrent;
      }
    }
    if (usable) break;
    found.why_not_more = checkpoint ? "evicted" : "no checkpoint of the recurrent layers";
  }
  found.pages = pages;

  found.draft_begin = targets < layout_.groups.size() ? 0 : pages;
  for (std::size_t group = targets; group < layout_.groups.size(); ++group) {
    const std::uint32_t seen = first_page_seen(pages * kPageTokens, layout_.groups[group].reach);
    std::uint32_t begin = pages;
    while (begin > seen && path[begin - 1]->pages[group]) --begin;
    if (begin > seen) found.draft_begin = std::max(found.draft_begin, begin);
  }
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    for (std::uint32_t i = 0; i < pages; ++i) {
      const GroupLayout& layout = layout_.groups[group];
      const bool wanted =
          i < sink_pages(layout.sink) || (i >= first_page_seen(pages * kPageTokens, layout.reach) &&
                                          (group < targets || i >= found.draft_begin));
      found.shared[group].push_back(wanted ? path[i]->pages[group] : PageRef());
    }
  }
  if (use) {
    // Storing a growing text again and again is no sign that it will be asked for; finding it is.
    for (std::uint32_t i = 0; i < pages; ++i) {
      ++path[i]->uses;
      used(path[i]);
    }
  }
  return found;
}

void PrefixIndex::complete_draft(std::string_view salt, std::span<const std::uint32_t> tokens,
                                 PrefixPages& pages) const {
  const auto from = roots_.find(salt);
  if (from == roots_.end()) return;
  const Node* node = &from->second->node;
  for (std::size_t page = 0; page < pages.front().size(); ++page) {
    const std::uint32_t* page_tokens = tokens.data() + page * kPageTokens;
    node = child(node, extend_prefix_hash(node->hash, page_tokens), page_tokens);
    if (node == nullptr) return;
    for (std::size_t group = layout_.target_groups(); group < pages.size(); ++group) {
      if (!pages[group][page]) pages[group][page] = node->pages[group];
    }
  }
}

std::string PrefixIndex::explain(const Node* last, std::uint64_t next_hash,
                                 std::span<const std::uint32_t> tokens, std::uint32_t pages) const {
  if (was_evicted(next_hash)) return "evicted";
  std::size_t common = 0;
  bool other = false;
  if (last != nullptr) {
    const std::size_t first = std::size_t{pages} * kPageTokens;
    const std::size_t compared = std::min(last->children.size(), kChildrenCompared);
    for (std::size_t i = 0; i < compared; ++i) {
      const std::vector<std::uint32_t>& theirs = last->children[i]->tokens;
      std::size_t n = 0;
      while (n < kPageTokens && first + n < tokens.size() && theirs[n] == tokens[first + n]) ++n;
      common = std::max(common, n);
      other = true;
    }
  }
  if (!other && pages == 0) return "nothing is stored";
  return fmt::format("differs at token {}", std::size_t{pages} * kPageTokens + common);
}

void PrefixIndex::remember_eviction(std::uint64_t hash) {
  evicted_[hash % kEvictedRemembered] = hash;
}

bool PrefixIndex::was_evicted(std::uint64_t hash) const {
  return hash != 0 && evicted_[hash % kEvictedRemembered] == hash;
}

void PrefixIndex::remove(Node* node) {
  assert(node->children.empty());
  unrank(node);
  for (const PageRef& page : node->pages) bytes_ -= page.bytes();
  const auto [first, last] = by_hash_.equal_range(node->hash);
  for (auto place = first; place != last; ++place) {
    if (place->second != node) continue;
    by_hash_.erase(place);
    break;
  }
  --nodes_;
  Node* parent = node->parent;
  auto& siblings = parent->children;
  const auto place = std::find_if(siblings.begin(), siblings.end(),
                                  [node](const auto& each) { return each.get() == node; });
  std::swap(*place, siblings.back());
  siblings.pop_back();
  rank(parent);
}

void PrefixIndex::remove_below(Node* node) {
  // Without recursion: a long conversation is a deep tree.
  Node* at = node;
  while (true) {
    if (!at->children.empty()) {
      at = at->children.back().get();
      continue;
    }
    if (at == node) return;
    Node* parent = at->parent;
    remove(at);
    at = parent;
  }
}

bool PrefixIndex::is_checkpoint(const Node* node) const {
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    if (layout_.groups[group].kind == GroupKind::recurrent && !node->pages[group]) return false;
  }
  return true;
}

std::size_t PrefixIndex::thin(Node* end, std::uint32_t pins, bool alone) {
  const auto is_spare = [&](const Node* node, std::size_t group, std::uint32_t hit) {
    const GroupLayout& layout = layout_.groups[group];
    const PageRef& page = node->pages[group];
    if (!page || (alone && !page.unique())) return false;
    if (layout.kind == GroupKind::recurrent) return node->depth + 1 < hit;
    return node->depth >= sink_pages(layout.sink) &&
           node->depth < first_page_seen(hit * kPageTokens, layout.reach);
  };
  // The nearest place below where a hit can end decides: what it sees of a page above it, those
  // further down do not see either.
  std::uint32_t hit = 0;  // its pages; 0: not known yet
  Node* first = nullptr;
  std::uint32_t first_hit = 0;
  for (Node* node = end; node->parent != nullptr; node = node->parent) {
    if (node == end || node->children.size() > 1) hit = 0;
    if (hit == 0 && is_checkpoint(node)) hit = node->depth + 1;
    if (hit == 0 || node->pins != pins) continue;
    for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
      if (!is_spare(node, group, hit)) continue;
      first = node;
      first_hit = hit;
      break;
    }
  }
  if (first == nullptr) return 0;
  std::size_t bytes = 0;
  for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
    if (!is_spare(first, group, first_hit)) continue;
    bytes += first->pages[group].bytes();
    first->pages[group].reset();
  }
  bytes_ -= bytes;
  return bytes;
}

std::size_t PrefixIndex::evict() {
  for (const auto& [score, last_use, node] : order_) {
    if (const std::size_t spare = thin(node, 0, true); spare > 0) return spare;
    // Pages that a running sequence or a pending write holds would free nothing.
    const bool held = std::any_of(node->pages.begin(), node->pages.end(),
                                  [](const PageRef& page) { return page && !page.unique(); });
    if (held) continue;
    floor_ = std::max(floor_, score);
    std::size_t bytes = 0;
    for (const PageRef& page : node->pages) bytes += page.bytes();
    remember_eviction(node->hash);
    remove(node);
    ++evictions_;
    return bytes;
  }
  return 0;
}

double PrefixIndex::cheapest() const {
  return order_.empty() ? std::numeric_limits<double>::infinity()
                        : std::get<0>(*order_.begin()) - floor_;
}

std::uint32_t PrefixIndex::pin(std::string_view salt, std::span<const std::uint32_t> tokens,
                               bool on) {
  Root* from = root(salt, false);
  if (from == nullptr) return 0;
  Node* node = &from->node;
  std::uint32_t page = 0;
  for (; (page + 1) * std::size_t{kPageTokens} <= tokens.size(); ++page) {
    const std::uint32_t* page_tokens = tokens.data() + std::size_t{page} * kPageTokens;
    Node* next = child(node, extend_prefix_hash(node->hash, page_tokens), page_tokens);
    if (next == nullptr) break;
    unrank(next);
    if (on) {
      ++next->pins;
    } else if (next->pins > 0) {
      --next->pins;
    }
    rank(next);
    node = next;
  }
  return page;
}

std::size_t PrefixIndex::clear(std::string_view salt) {
  const std::size_t before = bytes_;
  const auto place = roots_.find(salt);
  if (place == roots_.end()) return 0;
  remove_below(&place->second->node);
  roots_.erase(place);
  return before - bytes_;
}

std::size_t PrefixIndex::clear() {
  const std::size_t before = bytes_;
  for (auto& [salt, from] : roots_) remove_below(&from->node);
  roots_.clear();
  return before;
}

void PrefixIndex::adopt(PrefixIndex& other, bool with_draft) {
  assert(nodes_ == 0);
  std::swap(roots_, other.roots_);
  std::swap(by_hash_, other.by_hash_);
  std::swap(order_, other.order_);
  std::swap(evicted_, other.evicted_);
  std::swap(uses_, other.uses_);
  std::swap(floor_, other.floor_);
  std::swap(bytes_, other.bytes_);
  std::swap(nodes_, other.nodes_);
  if (with_draft) return;
  const std::size_t targets = layout_.target_groups();
  for (const auto& [hash, node] : by_hash_) {
    for (std::size_t group = targets; group < node->pages.size(); ++group) {
      bytes_ -= node->pages[group].bytes();
    }
    node->pages.resize(targets);
    node->pages.resize(layout_.groups.size());
    rank(node);
  }
}

std::vector<PrefixIndex::Leaf> PrefixIndex::leaves() const {
  std::vector<Leaf> all;
  for (const auto& [salt, from] : roots_) {
    std::vector<const Node*> open{&from->node};
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const auto& each : node->children) open.push_back(each.get());
      if (!node->children.empty() || node->parent == nullptr) continue;
      Leaf leaf{.salt = salt, .tokens = {}, .pages = {}};
      const std::size_t count = std::size_t{node->depth} + 1;
      leaf.tokens.resize(count * kPageTokens);
      leaf.pages.assign(layout_.groups.size(), std::vector<PageRef>(count));
      for (const Node* at = node; at->parent != nullptr; at = at->parent) {
        std::copy(at->tokens.begin(), at->tokens.end(),
                  leaf.tokens.begin() + static_cast<std::ptrdiff_t>(at->depth * kPageTokens));
        for (std::size_t group = 0; group < layout_.groups.size(); ++group) {
          leaf.pages[group][at->depth] = at->pages[group];
        }
      }
      all.push_back(std::move(leaf));
    }
  }
  return all;
}

}  // namespace drafthouse
