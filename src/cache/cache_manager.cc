#include "cache/cache_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace drafthouse {

namespace {

// Whether `of(group, page)` is true of any page that the draft's context after `pages` pages
// consists of: its sinks and what is in reach.
template <class Of>
bool any_draft_page(const StateLayout& layout, std::uint32_t pages, Of&& of) {
  for (std::uint32_t group = layout.target_groups(); group < layout.groups.size(); ++group) {
    const std::uint32_t seen = first_page_seen(pages * kPageTokens, layout.groups[group].reach);
    const std::uint32_t sink = sink_pages(layout.groups[group].sink);
    for (std::uint32_t page = 0; page < pages; ++page) {
      if ((page < sink || page >= seen) && of(group, page)) return true;
    }
  }
  return false;
}

// Whether the draft will see less than without the cache.
bool lacks_draft(const StateLayout& layout, const CacheHit& hit) {
  return any_draft_page(layout, hit.tokens / kPageTokens,
                        [&](std::uint32_t group, std::uint32_t page) {
                          return page >= hit.pages[group].size() || !hit.pages[group][page];
                        });
}

}  // namespace

std::string_view name_of(CacheTier tier) {
  switch (tier) {
    case CacheTier::none: return "none";
    case CacheTier::ram: return "ram";
    case CacheTier::disk: return "disk";
  }
  return "?";
}

CacheManager::CacheManager(const CacheIdentity& identity, const CacheConfig& config, StateSpec spec)
    : identity_(identity),
      config_(config),
      spec_(std::move(spec)),
      trace_(config.trace),
      index_(std::make_unique<PrefixIndex>(spec_.layout)) {}

CacheManager::~CacheManager() = default;

Status CacheManager::check(const CacheIdentity& identity, const CacheConfig& config,
                           const StateSpec& spec, DiskDirectories* disks) {
  if (!config.enabled) {
    return Status(Code::invalid_argument, "a cache manager was asked for with caching off");
  }
  if (spec.layout.groups.empty()) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: the pair has no state that could be cached", identity.text()));
  }
  if (Status s = check_settings(config); !s.ok()) return s;
  return disks == nullptr ? Status() : disks->check(config);
}

Result<std::shared_ptr<CacheManager>> CacheManager::create(const CacheIdentity& identity,
                                                           const CacheConfig& config,
                                                           StateSpec spec, CacheManager* before,
                                                           DiskDirectories* disks,
                                                           const CacheStats& counted) {
  if (Status s = check(identity, config, spec, nullptr); !s.ok()) return s;
  std::shared_ptr<CacheManager> manager(new CacheManager(identity, config, std::move(spec)));
  if (disks != nullptr && !config.disk_directory.empty()) {
    Result<std::shared_ptr<DiskDirectory>> directory = disks->open(config);
    if (!directory.ok()) return directory.status();
    Result<std::unique_ptr<DiskTier>> tier =
        DiskTier::open(std::move(directory).value(), identity, manager->spec_);
    if (!tier.ok()) return tier.status();
    manager->disk_ = std::move(tier).value();
    manager->retire_flush_s_ = disks->retire_flush_s;
  }
  manager->stats_ = counted;
  if (before != nullptr) manager->inherit(*before);
  if (manager->pages_ == nullptr) {
    manager->pages_ = std::make_shared<PageStore>(manager->spec_.layout, manager->spec_.budget);
  }
  return manager;
}

void CacheManager::inherit(CacheManager& before) {
  const std::lock_guard<std::mutex> theirs(before.lock_);
  stats_ = before.stats_;
  ++stats_.rebuilds;
  const bool same_target = before.spec_.target == spec_.target;
  const bool same_draft = same_target && before.spec_.draft == spec_.draft &&
                          before.spec_.layout.groups.size() == spec_.layout.groups.size();
  if (!same_target || !same_draft)
    digest_change_ = changed_field(before.spec_.fields, spec_.fields);
  if (same_draft) pages_ = before.pages_;
  if (!same_target) return;
  index_->adopt(*before.index_, same_draft);
  while (config_.ram_bytes != 0 && index_->bytes() > config_.ram_bytes && evict_locked() > 0) {
  }
}

Status CacheManager::closed() const {
  return Status(Code::closed,
                fmt::format("the prefix cache of {} has been retired", identity_.text()));
}

Result<CacheHit> CacheManager::lookup(std::string_view salt, std::span<const std::uint32_t> prompt,
                                      bool wants_draft) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) return closed();
  ++stats_.lookups;
  stats_.prompt_tokens += prompt.size();
  CacheHit hit;
  const auto pages_max =
      static_cast<std::uint32_t>(prompt.empty() ? 0 : (prompt.size() - 1) / kPageTokens);
  PrefixIndex::Found found = index_->find(salt, prompt, pages_max, true);
  hit.tokens = found.pages * kPageTokens;
  hit.known_tokens = found.known * kPageTokens;
  hit.draft_begin = found.draft_begin * kPageTokens;
  hit.pages_in_ram = found.pages;
  hit.pages = std::move(found.shared);
  if (pages_max == 0) {
    hit.reason = "too short";
  } else {
    hit.reason = std::move(found.why_not_more);
    if (found.pages == 0 && hit.reason == "nothing is stored" && !digest_change_.empty()) {
      hit.reason = "state digest changed: " + digest_change_;
    }
  }
  if (hit.tokens > 0) hit.tier = CacheTier::ram;
  if (disk_ != nullptr) look_on_disk(hit, salt, prompt, pages_max, wants_draft);
  if (hit.tokens > 0) {
    ++stats_.hits;
    stats_.ram_hit_tokens += std::uint64_t{hit.pages_in_ram} * kPageTokens;
    if (wants_draft && hit.on_disk == nullptr && lacks_draft(spec_.layout, hit)) {
      ++stats_.short_draft_hits;
      if (hit.reason.empty()) hit.reason = "draft context not stored";
    }
  }
  return hit;
}

std::size_t CacheManager::evict_locked() {
  const std::size_t bytes = index_->evict();
  if (bytes > 0) ++stats_.evicted_own;
  return bytes;
}

bool CacheManager::admit(std::size_t bytes) {
  if (config_.ram_bytes == 0) return true;
  while (index_->bytes() + bytes > config_.ram_bytes) {
    if (evict_locked() == 0) return false;
  }
  return true;
}

void CacheManager::look_on_disk(CacheHit& hit, std::string_view salt,
                                std::span<const std::uint32_t> prompt, std::uint32_t pages_max,
                                bool wants_draft) {
  const bool more_target = hit.pages_in_ram < pages_max;
  const bool more_draft = wants_draft && lacks_draft(spec_.layout, hit);
  if (!more_target && !more_draft) return;
  auto found = std::make_shared<DiskTier::Found>(
      disk_->find(salt, prompt.first(std::size_t{pages_max} * kPageTokens)));
  const bool longer = found->pages > hit.pages_in_ram;
  const bool drafts =
      more_draft &&
      any_draft_page(spec_.layout, hit.pages_in_ram, [&](std::uint32_t group, std::uint32_t page) {
        return !hit.pages[group][page] && disk_->has(*found, group, page);
      });
  if (!longer && !drafts) {
    if (hit.tokens == 0 && hit.reason == "nothing is stored") hit.reason = found->why_not_more;
    return;
  }
  if (longer) {
    hit.tokens = found->pages * kPageTokens;
    hit.tier = CacheTier::disk;
    hit.reason = found->why_not_more;
  }
  hit.on_disk = std::move(found);
  hit.salt = salt;
  hit.prefix.assign(prompt.begin(), prompt.begin() + hit.tokens);
}

void CacheManager::restore(CacheHit& hit) {
  if (hit.on_disk == nullptr || disk_ == nullptr) return;
  const std::shared_ptr<const DiskTier::Found> found = std::move(hit.on_disk);
  const std::size_t groups = spec_.layout.groups.size();
  const std::uint32_t targets = spec_.layout.target_groups();
  std::uint32_t pages = hit.tokens / kPageTokens;
  std::string failure;
  // Reads what the row at the end of `pages` pages sees and RAM lacks. False: it is not to be had.
  const auto bring = [&](std::uint32_t group, std::uint32_t page) {
    if (hit.pages[group][page]) return true;
    if (!disk_->has(*found, group, page)) return false;
    Result<PageRef> into = pages_->pool(group)->take();
    if (!into.ok()) {
      failure = into.status().message();
      return false;
    }
    const std::size_t bytes = spec_.layout.groups[group].page_bytes;
    const Status read = disk_->read(*found, group, page, {into.value().data(), bytes});
    if (!read.ok()) {
      failure = read.message();
      return false;
    }
    hit.pages[group][page] = std::move(into).value();
    return true;
  };
  for (auto& group : hit.pages) group.resize(pages);
  while (pages > hit.pages_in_ram) {
    std::uint32_t whole = pages;
    for (std::uint32_t group = 0; group < targets; ++group) {
      const std::uint32_t seen =
          first_page_seen(pages * kPageTokens, spec_.layout.groups[group].reach);
      for (std::uint32_t page = seen; page < whole; ++page) {
        if (!bring(group, page)) whole = page;
      }
    }
    if (whole == pages) break;
    pages = std::max(whole, hit.pages_in_ram);
  }
  const bool shortened = pages * kPageTokens < hit.tokens;
  for (auto& group : hit.pages) group.resize(pages);
  hit.tokens = pages * kPageTokens;
  hit.prefix.resize(hit.tokens);
  // The draft's context, from its beginning on, or from where it is whole.
  std::uint32_t begin = 0;
  for (std::uint32_t group = targets; group < groups; ++group) {
    const std::uint32_t seen = first_page_seen(hit.tokens, spec_.layout.groups[group].reach);
    std::uint32_t first = pages;
    while (first > seen && bring(group, first - 1)) --first;
    if (first > seen) begin = std::max(begin, first);
    const std::uint32_t sink = std::min(sink_pages(spec_.layout.groups[group].sink), seen);
    for (std::uint32_t page = 0; page < sink; ++page) (void)bring(group, page);
  }
  hit.draft_begin = begin * kPageTokens;
  for (std::uint32_t group = targets; group < groups; ++group) {
    const std::uint32_t sink = sink_pages(spec_.layout.groups[group].sink);
    for (std::uint32_t page = sink; page < begin; ++page) hit.pages[group][page].reset();
  }
  const bool short_draft = lacks_draft(spec_.layout, hit);
  if (shortened) hit.reason = failure.empty() ? "evicted" : failure;
  if (short_draft && hit.reason.empty()) hit.reason = "draft context not stored";
  if (pages <= hit.pages_in_ram) hit.tier = pages > 0 ? CacheTier::ram : CacheTier::none;

  const std::lock_guard<std::mutex> lock(lock_);
  if (shortened) ++stats_.restore_failures;
  if (short_draft) ++stats_.short_draft_hits;
  if (pages > hit.pages_in_ram) {
    stats_.disk_hit_tokens += std::uint64_t{pages - hit.pages_in_ram} * kPageTokens;
  }
  if (!active() || pages == 0) return;
  (void)index_->insert(hit.salt, hit.prefix, hit.pages,
                       [this](std::size_t bytes) { return admit(bytes); });
}

Result<std::uint32_t> CacheManager::publish(std::string_view salt,
                                            std::span<const std::uint32_t> tokens,
                                            const PrefixPages& pages, bool durable) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) {
    ++stats_.refused_retired;
    return closed();
  }
  if (pages.size() != spec_.layout.groups.size() ||
      tokens.size() < pages.front().size() * std::size_t{kPageTokens}) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: pages of {} groups for {} tokens do not fit the pair's state",
                              identity_.text(), pages.size(), tokens.size()));
  }
  const std::size_t before = index_->nodes();
  const std::uint64_t evicted = index_->evictions();
  const std::uint32_t stored =
      index_->insert(salt, tokens, pages, [this](std::size_t bytes) { return admit(bytes); });
  stats_.published_pages += index_->nodes() + (index_->evictions() - evicted) - before;
  stats_.refused_full += pages.front().size() - stored;
  // The tier's own queue takes shares of the pages; nothing is written here. Of the draft's context
  // a sequence holds no more than its window; what RAM has of the rest goes along, since a prompt
  // that leaves this one earlier sees another window.
  if (durable && disk_ != nullptr) {
    PrefixPages whole = pages;
    index_->complete_draft(salt, tokens, whole);
    disk_->offer(salt, tokens, whole);
  }
  return stored;
}

Result<std::uint32_t> CacheManager::pin(std::string_view salt,
                                        std::span<const std::uint32_t> tokens, bool on) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) return closed();
  return index_->pin(salt, tokens, on);
}

Result<std::size_t> CacheManager::clear(std::string_view salt) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) return closed();
  const std::size_t bytes = index_->clear(salt);
  pages_->trim();
  if (disk_ != nullptr) {
    if (Status s = disk_->clear(salt); !s.ok()) return s;
  }
  return bytes;
}

Result<std::size_t> CacheManager::clear_all() {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) return closed();
  const std::size_t bytes = index_->clear();
  pages_->trim();
  if (disk_ != nullptr) {
    if (Status s = disk_->clear_all(); !s.ok()) return s;
  }
  return bytes;
}

std::size_t CacheManager::evict(bool pressure) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (pressure && index_->bytes() <= config_.ram_floor_bytes) return 0;
  const std::size_t bytes = index_->evict();
  if (bytes > 0) {
    ++(pressure ? stats_.evicted_pressure : stats_.evicted_own);
    pages_->trim();
  }
  return bytes;
}

double CacheManager::cheapest() const {
  const std::lock_guard<std::mutex> lock(lock_);
  if (index_->bytes() <= config_.ram_floor_bytes) return std::numeric_limits<double>::infinity();
  return index_->cheapest();
}

CacheStats CacheManager::stats() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return stats_;
}

std::size_t CacheManager::ram_bytes() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return index_->bytes();
}

std::size_t CacheManager::ram_pages() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return index_->nodes();
}

void CacheManager::begin_request() {
  active_requests_.fetch_add(1);
  if (disk_ != nullptr) disk_->directory().begin_request();
}

void CacheManager::end_request() {
  active_requests_.fetch_sub(1);
  if (disk_ != nullptr) disk_->directory().end_request();
}

Status CacheManager::flush(double deadline_s) {
  if (disk_ == nullptr || disk_->directory().flush(deadline_s)) return {};
  return Status(Code::cancelled, fmt::format("the disk cache in {} was not written within {:.1f} s",
                                             config_.disk_directory, deadline_s));
}

Status CacheManager::retire() {
  retired_.store(true, std::memory_order_release);
  {
    // Operations in progress end first.
    const std::lock_guard<std::mutex> lock(lock_);
    if (closed_) return {};
    // Write-through may have dropped what a full queue refused.
    if (disk_ != nullptr) {
      for (const PrefixIndex::Leaf& leaf : index_->leaves())
        disk_->offer(leaf.salt, leaf.tokens, leaf.pages);
    }
  }
  if (Status s = flush(retire_flush_s_); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(lock_);
  closed_ = true;
  return {};
}

}  // namespace drafthouse
