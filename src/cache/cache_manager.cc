#include "cache/cache_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace drafthouse {

std::string changed_field(const StateSpec& before, const StateSpec& after) {
  for (const auto& [name, value] : after.fields) {
    const auto other = std::find_if(before.fields.begin(), before.fields.end(),
                                    [&](const auto& field) { return field.first == name; });
    if (other == before.fields.end() || other->second != value) return name;
  }
  for (const auto& [name, value] : before.fields) {
    const bool there = std::any_of(after.fields.begin(), after.fields.end(),
                                   [&](const auto& field) { return field.first == name; });
    if (!there) return name;
  }
  return {};
}

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

Result<std::shared_ptr<CacheManager>> CacheManager::create(const CacheIdentity& identity,
                                                           const CacheConfig& config,
                                                           StateSpec spec, CacheManager* before) {
  if (!config.enabled) {
    return Status(Code::invalid_argument, "a cache manager was asked for with caching off");
  }
  if (spec.layout.groups.empty()) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: the pair has no state that could be cached", identity.text()));
  }
  std::shared_ptr<CacheManager> manager(new CacheManager(identity, config, std::move(spec)));
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
  if (!same_target || !same_draft) digest_change_ = changed_field(before.spec_, spec_);
  if (same_draft) pages_ = before.pages_;
  if (!same_target) return;
  index_->adopt(*before.index_, same_draft);
  while (config_.ram_bytes != 0 && index_->bytes() > config_.ram_bytes && evict_locked() > 0) {
  }
}

Status CacheManager::closed() const {
  return Status(Code::closed, fmt::format("the prefix cache of {} has been retired", identity_.text()));
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
  hit.draft_begin = found.draft_begin * kPageTokens;
  hit.pages_in_ram = found.pages;
  hit.pages = std::move(found.shared);
  if (pages_max == 0) {
    hit.reason = "too short";
  } else {
    hit.reason = std::move(found.why_not_more);
    if (found.pages == 0 && hit.reason == "nothing stored" && !digest_change_.empty()) {
      hit.reason = "state digest changed: " + digest_change_;
    }
  }
  if (hit.tokens > 0) {
    hit.tier = CacheTier::ram;
    ++stats_.hits;
    stats_.ram_hit_tokens += hit.tokens;
    if (wants_draft && hit.draft_begin > 0) {
      const bool reach_needs_it = std::any_of(
          spec_.layout.groups.begin(), spec_.layout.groups.end(), [&](const GroupLayout& group) {
            return group.draft &&
                   first_page_seen(hit.tokens, group.reach) * kPageTokens < hit.draft_begin;
          });
      if (reach_needs_it) {
        ++stats_.short_draft_hits;
        if (hit.reason.empty()) hit.reason = "draft context not stored";
      }
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

void CacheManager::restore(CacheHit& hit) { (void)hit; }

Result<std::uint32_t> CacheManager::publish(std::string_view salt,
                                            std::span<const std::uint32_t> tokens,
                                            const PrefixPages& pages, bool durable) {
  (void)durable;
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
  return bytes;
}

Result<std::size_t> CacheManager::clear_all() {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!active()) return closed();
  const std::size_t bytes = index_->clear();
  pages_->trim();
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

void CacheManager::begin_request() { active_requests_.fetch_add(1); }

void CacheManager::end_request() { active_requests_.fetch_sub(1); }

Status CacheManager::flush(double) { return {}; }

Status CacheManager::retire() {
  retired_.store(true, std::memory_order_release);
  const std::lock_guard<std::mutex> lock(lock_);
  return {};
}

}  // namespace drafthouse
