#include "cache/disk/disk_index.h"

#include <algorithm>
#include <cassert>

#include "cache/disk/hashing.h"

namespace drafthouse {

// Invariants: a node has at least one run that covers it, or is its root's start. `hanging` are the
// runs whose first page is a child of the node. The nodes above a node are there.
struct DiskIndex::Node {
  Node* parent = nullptr;
  PageAddress address = {};
  std::vector<Held*> runs = {};
  std::vector<Held*> hanging = {};
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Node>> children = {};
  std::uint32_t page = 0;  // of the start: unused

  std::span<const std::uint32_t> tokens() const;
};

struct DiskIndex::Held {
  std::shared_ptr<StoredRun> run;
  Root* root = nullptr;
  Node* before = nullptr;  // the page before the first
  Node* last = nullptr;
};

struct DiskIndex::Root {
  Node start;
  std::unordered_map<PageAddress, Node*, HexNameHash<32>> by_address;
};

std::span<const std::uint32_t> DiskIndex::Node::tokens() const {
  return runs.front()->run->record.page_tokens(page);
}

DiskIndex::DiskIndex() = default;
DiskIndex::~DiskIndex() = default;

namespace {

constexpr std::size_t kChildrenComparedMax = 64;

bool same(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// The place of a page in a group's file, or -1.
std::int64_t slot_of(const RunRecord& record, std::uint32_t group, std::uint32_t page) {
  if (group >= record.groups.size()) return -1;
  const std::vector<RunPage>& pages = record.groups[group].pages;
  const auto at =
      std::lower_bound(pages.begin(), pages.end(), page,
                       [](const RunPage& p, std::uint32_t want) { return p.page < want; });
  return at != pages.end() && at->page == page ? at - pages.begin() : -1;
}

std::size_t memory_of(const RunRecord& record) {
  // Tokens and tables of the run, nodes of its pages.
  return sizeof(StoredRun) + encoded_bytes(record) + record.pages() * std::size_t{320};
}

}  // namespace

DiskIndex::Node* DiskIndex::child(const Node& parent, std::span<const std::uint32_t> tokens) const {
  const auto [begin, end] = parent.children.equal_range(checksum(tokens));
  for (auto it = begin; it != end; ++it) {
    if (same(it->second->tokens(), tokens)) return it->second.get();
  }
  return nullptr;
}

bool DiskIndex::insert(std::shared_ptr<StoredRun> run) {
  const RunRecord& record = run->record;
  if (runs_.contains(record.id)) return false;
  const auto known = roots_.find(record.root);
  Node* before = nullptr;
  if (record.first == 0) {
    std::unique_ptr<Root>& root = roots_[record.root];
    if (root == nullptr) root = std::make_unique<Root>();
    before = &root->start;
  } else if (known != roots_.end()) {
    const auto at = known->second->by_address.find(record.parent);
    if (at != known->second->by_address.end() && at->second->page + 1 == record.first) {
      before = at->second;
    }
  }
  if (before == nullptr) return false;
  auto held = std::make_unique<Held>();
  held->root = roots_.find(record.root)->second.get();
  held->before = before;
  held->run = std::move(run);
  add_pages(*held);
  before->hanging.push_back(held.get());
  charged_ += held->run->charged;
  memory_bytes_ += memory_of(record);
  runs_.emplace(record.id, std::move(held));
  return true;
}

void DiskIndex::add_pages(Held& held) {
  const RunRecord& record = held.run->record;
  Node* node = held.before;
  for (std::uint32_t page = record.first; page < record.end(); ++page) {
    const std::span<const std::uint32_t> tokens = record.page_tokens(page);
    Node* next = child(*node, tokens);
    if (next == nullptr) {
      auto made = std::make_unique<Node>();
      made->parent = node;
      made->page = page;
      made->address = page_address(node->address, tokens);
      next = made.get();
      held.root->by_address.emplace(made->address, next);
      node->children.emplace(checksum(tokens), std::move(made));
    }
    next->runs.push_back(&held);
    node = next;
  }
  held.last = node;
}

// Requires that nothing hangs from its pages.
void DiskIndex::take_out(Held& held) {
  Node* node = held.last;
  while (node != held.before) {
    Node* parent = node->parent;
    if (node->runs.size() == 1) {
      assert(node->hanging.empty() && node->children.empty());
      const auto [begin, end] = parent->children.equal_range(checksum(node->tokens()));
      const auto at =
          std::find_if(begin, end, [&](const auto& c) { return c.second.get() == node; });
      held.root->by_address.erase(node->address);
      parent->children.erase(at);
    } else {
      std::erase(node->runs, &held);
    }
    node = parent;
  }
  std::erase(held.before->hanging, &held);
  charged_ -= held.run->charged;
  memory_bytes_ -= memory_of(held.run->record);
}

std::vector<std::shared_ptr<StoredRun>> DiskIndex::remove(const RootName& root, const RunId& id) {
  std::vector<std::shared_ptr<StoredRun>> order;
  const auto at = runs_.find(id);
  if (at == runs_.end() || at->second->run->record.root != root) return order;
  // Breadth first from the run gives every run before those that hang from it.
  std::vector<Held*> going{at->second.get()};
  for (std::size_t i = 0; i < going.size(); ++i) {
    for (Node* node = going[i]->last; node != going[i]->before; node = node->parent) {
      for (Held* below : node->hanging) {
        // Runs that share pages have the same runs hanging from them.
        if (std::find(going.begin(), going.end(), below) == going.end()) going.push_back(below);
      }
    }
  }
  // A run may hang from two that were found at different times; deeper first pages always go first.
  std::stable_sort(going.begin(), going.end(), [](const Held* a, const Held* b) {
    return a->run->record.first > b->run->record.first;
  });
  for (Held* held : going) {
    take_out(*held);
    order.push_back(held->run);
    runs_.erase(held->run->record.id);
  }
  const auto of_root = roots_.find(root);
  if (of_root->second->start.children.empty()) roots_.erase(of_root);
  return order;
}

void DiskIndex::clear() {
  runs_.clear();
  roots_.clear();
  charged_ = 0;
  memory_bytes_ = 0;
}

std::shared_ptr<StoredRun> DiskIndex::run(const RunId& id) const {
  const auto at = runs_.find(id);
  return at == runs_.end() ? nullptr : at->second->run;
}

bool DiskIndex::is_leaf(const StoredRun& run) const {
  const auto at = runs_.find(run.record.id);
  if (at == runs_.end()) return false;
  for (const Node* node = at->second->last; node != at->second->before; node = node->parent) {
    if (!node->hanging.empty()) return false;
  }
  return true;
}

std::shared_ptr<StoredRun> DiskIndex::run_at(const RootName& root,
                                             const PageAddress& address) const {
  const auto of_root = roots_.find(root);
  if (of_root == roots_.end()) return nullptr;
  const auto at = of_root->second->by_address.find(address);
  return at == of_root->second->by_address.end() ? nullptr : at->second->runs.front()->run;
}

std::shared_ptr<StoredRun> DiskIndex::parent_of(const StoredRun& run) const {
  const auto at = runs_.find(run.record.id);
  if (at == runs_.end() || at->second->before->runs.empty()) return nullptr;
  return at->second->before->runs.front()->run;
}

std::shared_ptr<StoredRun> DiskIndex::oldest_leaf() const {
  std::shared_ptr<StoredRun> best;
  for (const auto& [id, held] : runs_) {
    const StoredRun& run = *held->run;
    if (run.holds.load() > 0) continue;
    if (best != nullptr && run.last_use_ns.load() >= best->last_use_ns.load()) continue;
    if (is_leaf(run)) best = held->run;
  }
  return best;
}

void DiskIndex::for_each(const std::function<void(const std::shared_ptr<StoredRun>&)>& call) const {
  for (const auto& [id, held] : runs_) call(held->run);
}

std::size_t DiskIndex::pages() const {
  std::size_t count = 0;
  for (const auto& [name, root] : roots_) count += root->by_address.size();
  return count;
}

IndexMatch DiskIndex::find(const RootName& root, std::span<const std::uint32_t> tokens,
                           const StateLayout& layout) const {
  IndexMatch match;
  const std::size_t groups = layout.groups.size();
  match.places.resize(groups);
  const auto of_root = roots_.find(root);
  if (of_root == roots_.end()) return match;
  match.root_known = true;
  const Node* node = &of_root->second->start;
  const auto whole = static_cast<std::uint32_t>(tokens.size() / kPageTokens);
  std::vector<std::uint32_t> streak(groups, 0);  // pages present without a gap, up to this one
  for (std::uint32_t page = 0; page < whole; ++page) {
    const std::span<const std::uint32_t> wanted =
        tokens.subspan(std::size_t{page} * kPageTokens, kPageTokens);
    const Node* next = child(*node, wanted);
    if (next == nullptr) break;
    node = next;
    ++match.known;
    bool usable = true;
    for (std::uint32_t g = 0; g < groups; ++g) {
      PagePlace& place = match.places[g].emplace_back();
      for (const Held* held : node->runs) {
        const std::int64_t slot = slot_of(held->run->record, g, page);
        if (slot < 0) continue;
        place = {held->run, static_cast<std::uint32_t>(slot)};
        break;
      }
      if (layout.groups[g].draft) continue;
      const bool present = place.run != nullptr || layout.groups[g].page_bytes == 0;
      streak[g] = present ? streak[g] + 1 : 0;
      const std::uint32_t first = first_page_seen((page + 1) * kPageTokens, layout.groups[g].reach);
      usable = usable && streak[g] >= page + 1 - std::min(first, page + 1);
    }
    if (usable) {
      match.pages = page + 1;
      match.deepest = node->runs.front()->run;
    }
  }
  // How far the next page agrees with the nearest that is known: for people, so a few must do.
  const std::span<const std::uint32_t> rest =
      tokens.subspan(std::size_t{match.known} * kPageTokens);
  std::size_t compared = 0;
  for (const auto& [key, below] : node->children) {
    if (++compared > kChildrenComparedMax) break;
    const std::span<const std::uint32_t> other = below->tokens();
    const std::size_t count = std::min(rest.size(), other.size());
    const auto differs = std::mismatch(rest.begin(), rest.begin() + count, other.begin()).first;
    match.equal_tokens =
        std::max(match.equal_tokens, static_cast<std::uint32_t>(differs - rest.begin()));
  }
  for (std::uint32_t g = 0; g < groups; ++g) {
    match.places[g].resize(match.pages);
    if (layout.groups[g].draft) continue;
    const std::uint32_t first = first_page_seen(match.pages * kPageTokens, layout.groups[g].reach);
    for (std::uint32_t page = 0; page < std::min(first, match.pages); ++page) {
      match.places[g][page] = {};
    }
  }
  return match;
}

std::vector<MissingPage> DiskIndex::missing(const RootName& root,
                                            std::span<const std::uint32_t> tokens,
                                            const StateLayout& layout) const {
  const auto whole = static_cast<std::uint32_t>(tokens.size() / kPageTokens);
  std::vector<MissingPage> missing;
  const auto of_root = roots_.find(root);
  const Node* node = of_root == roots_.end() ? nullptr : &of_root->second->start;
  for (std::uint32_t page = 0; page < whole; ++page) {
    if (node != nullptr) {
      node = child(*node, tokens.subspan(std::size_t{page} * kPageTokens, kPageTokens));
    }
    for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
      const GroupLayout& group = layout.groups[g];
      const bool seen = group.draft || page >= first_page_seen(whole * kPageTokens, group.reach);
      if (group.page_bytes == 0 || !seen) continue;
      const bool present = node != nullptr &&
                           std::any_of(node->runs.begin(), node->runs.end(), [&](const Held* held) {
                             return slot_of(held->run->record, g, page) >= 0;
                           });
      if (!present) missing.push_back({page, g});
    }
  }
  return missing;
}

std::uint32_t DiskIndex::known(const RootName& root, std::span<const std::uint32_t> tokens) const {
  const auto of_root = roots_.find(root);
  if (of_root == roots_.end()) return 0;
  const Node* node = &of_root->second->start;
  std::uint32_t page = 0;
  for (; (page + 1) * std::size_t{kPageTokens} <= tokens.size(); ++page) {
    node = child(*node, tokens.subspan(std::size_t{page} * kPageTokens, kPageTokens));
    if (node == nullptr) break;
  }
  return page;
}

}  // namespace drafthouse
