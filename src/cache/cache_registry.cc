#include "cache/cache_registry.h"

#include <fmt/format.h>

#include <cassert>

namespace drafthouse {
namespace {

bool same_state(const StateSpec& a, const StateSpec& b) {
  return a.target == b.target && a.draft == b.draft;
}

// What a refused engine wanted that the present one does not have.
std::string difference(const CacheConfig& have, const CacheConfig& want,
                       const StateSpec& have_state, const StateSpec& want_state) {
  if (!same_state(have_state, want_state)) {
    return fmt::format("the state differs in \"{}\"",
                       changed_field(have_state.fields, want_state.fields));
  }
  if (have.enabled != want.enabled) {
    return fmt::format("caching is {} there", have.enabled ? "on" : "off");
  }
  if (have.ram_bytes != want.ram_bytes) return "ram_bytes differs";
  if (have.ram_floor_bytes != want.ram_floor_bytes) return "ram_floor_bytes differs";
  if (have.disk_directory != want.disk_directory) return "disk_directory differs";
  if (have.disk_bytes != want.disk_bytes) return "disk_bytes differs";
  if (have.disk_free_bytes != want.disk_free_bytes) return "disk_free_bytes differs";
  if (have.disk_queue_bytes != want.disk_queue_bytes) return "disk_queue_bytes differs";
  return "snapshot_tokens differs";
}

}  // namespace

CacheLease::CacheLease(CacheLease&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)),
      identity_(std::move(other.identity_)),
      manager_(std::move(other.manager_)) {}

CacheLease& CacheLease::operator=(CacheLease&& other) noexcept {
  if (this != &other) {
    release();
    registry_ = std::exchange(other.registry_, nullptr);
    identity_ = std::move(other.identity_);
    manager_ = std::move(other.manager_);
  }
  return *this;
}

void CacheLease::release() {
  manager_.reset();
  if (CacheRegistry* registry = std::exchange(registry_, nullptr)) registry->release(identity_);
}

void CacheRegistry::release(const CacheIdentity& identity) {
  const std::lock_guard<std::mutex> lock(lock_);
  const auto place = slots_.find(identity);
  assert(place != slots_.end() && place->second->leases > 0);
  --place->second->leases;
  erase_if_empty(identity, place->second);
}

void CacheRegistry::erase_if_empty(const CacheIdentity& identity, const SlotRef& slot) {
  if (slot->leases > 0 || slot->manager != nullptr) return;
  if (slot->state == SlotState::building || slot->state == SlotState::retiring) return;
  const auto place = slots_.find(identity);
  if (place != slots_.end() && place->second == slot) slots_.erase(place);
}

void CacheRegistry::wait_until_settled(std::unique_lock<std::mutex>& lock, const SlotRef& slot) {
  slot->changed.wait(lock, [&slot] {
    return slot->state != SlotState::building && slot->state != SlotState::retiring;
  });
}

Status CacheRegistry::check(std::unique_lock<std::mutex>& lock, const SlotRef& slot,
                            const CacheConfig& config, const StateSpec& spec) {
  if (!config.enabled || slot->manager == nullptr) return {};
  const SlotState before = slot->state;
  slot->state = SlotState::building;
  lock.unlock();
  Status status = CacheManager::check(slot->manager->identity(), config, spec, disks_);
  lock.lock();
  slot->state = before;
  slot->changed.notify_all();
  return status;
}

Status CacheRegistry::retire(std::unique_lock<std::mutex>& lock, const SlotRef& slot) {
  if (slot->manager == nullptr) return {};
  slot->state = SlotState::retiring;
  const std::shared_ptr<CacheManager> manager = slot->manager;
  lock.unlock();
  Status status = manager->retire();
  const CacheStats counted = manager->stats();
  lock.lock();
  slot->state = status.ok() ? SlotState::off : SlotState::failed;
  if (status.ok()) {
    past_[manager->identity()] = counted;
    slot->manager.reset();
  }
  slot->changed.notify_all();
  return status;
}

Result<CacheLease> CacheRegistry::resolve(const CacheIdentity& identity, const CacheConfig& config,
                                          StateSpec spec, CacheLease* own) {
  std::unique_lock<std::mutex> lock(lock_);
  SlotRef slot;
  while (true) {
    SlotRef& place = slots_[identity];
    if (place == nullptr) place = std::make_shared<Slot>();
    slot = place;
    if (slot->state != SlotState::building && slot->state != SlotState::retiring) break;
    wait_until_settled(lock, slot);
  }
  const bool matches =
      slot->config.has_value() && slot->config->same_as(config) && same_state(slot->spec, spec);
  const bool there = config.enabled ? slot->manager != nullptr && slot->manager->active()
                                    : slot->manager == nullptr;
  if (!matches && slot->config.has_value()) {
    const bool mine = own != nullptr && *own && own->identity_ == identity;
    if (slot->leases > (mine ? 1u : 0u)) {
      return Status(
          Code::conflict,
          fmt::format("{} is in use with another configuration: {}; give one of the two "
                      "an instance label to run the pair twice",
                      identity.text(), difference(*slot->config, config, slot->spec, spec)));
    }
  }
  if (matches && there) {
    if (slot->manager != nullptr) slot->manager->set_trace(config.trace);
  } else {
    if (Status s = check(lock, slot, config, spec); !s.ok()) return s;
    const std::shared_ptr<CacheManager> before = slot->manager;
    if (Status s = retire(lock, slot); !s.ok()) return s;
    slot->config.reset();
    if (config.enabled) {
      slot->state = SlotState::building;
      const auto past = past_.find(identity);
      const CacheStats counted = past == past_.end() ? CacheStats{} : past->second;
      lock.unlock();
      Result<std::shared_ptr<CacheManager>> made =
          CacheManager::create(identity, config, spec, before.get(), disks_, counted);
      lock.lock();
      slot->state = made.ok() ? SlotState::active : SlotState::off;
      slot->changed.notify_all();
      if (!made.ok()) {
        erase_if_empty(identity, slot);
        return made.status();
      }
      slot->manager = std::move(made).value();
      past_.erase(identity);
    }
    slot->config = config;
    slot->spec = std::move(spec);
  }
  current_ = identity;
  ++slot->leases;
  CacheLease lease;
  lease.registry_ = this;
  lease.identity_ = identity;
  lease.manager_ = slot->manager;
  lock.unlock();
  if (own != nullptr) own->release();
  return lease;
}

std::shared_ptr<CacheManager> CacheRegistry::sync(const CacheIdentity& identity,
                                                  const CacheConfig& config,
                                                  const StateSpec& spec) {
  std::unique_lock<std::mutex> lock(lock_);
  const auto place = slots_.find(identity);
  if (place == slots_.end()) return nullptr;
  const SlotRef slot = place->second;
  wait_until_settled(lock, slot);
  if (slot->manager == nullptr) return nullptr;
  if (config.enabled && slot->manager->active() && slot->config.has_value() &&
      slot->config->same_as(config) && same_state(slot->spec, spec)) {
    slot->manager->set_trace(config.trace);
    current_ = identity;
    return slot->manager;
  }
  if (retire(lock, slot).ok()) erase_if_empty(identity, slot);
  return nullptr;
}

std::shared_ptr<CacheManager> CacheRegistry::find(const CacheIdentity& identity) const {
  const std::lock_guard<std::mutex> lock(lock_);
  const auto place = slots_.find(identity);
  if (place == slots_.end() || place->second->manager == nullptr) return nullptr;
  return place->second->manager->active() ? place->second->manager : nullptr;
}

std::shared_ptr<CacheManager> CacheRegistry::current() const {
  const std::lock_guard<std::mutex> lock(lock_);
  if (!current_.has_value()) return nullptr;
  const auto place = slots_.find(*current_);
  if (place == slots_.end() || place->second->manager == nullptr) return nullptr;
  return place->second->manager->active() ? place->second->manager : nullptr;
}

Status CacheRegistry::shutdown(const CacheIdentity& identity) {
  std::unique_lock<std::mutex> lock(lock_);
  const auto place = slots_.find(identity);
  if (place == slots_.end()) return {};
  const SlotRef slot = place->second;
  wait_until_settled(lock, slot);
  Status status = retire(lock, slot);
  if (status.ok()) erase_if_empty(identity, slot);
  return status;
}

std::vector<std::pair<CacheIdentity, Status>> CacheRegistry::shutdown() {
  std::vector<CacheIdentity> all;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    for (const auto& [identity, slot] : slots_) all.push_back(identity);
  }
  std::vector<std::pair<CacheIdentity, Status>> failed;
  for (const CacheIdentity& identity : all) {
    if (Status s = shutdown(identity); !s.ok()) failed.emplace_back(identity, std::move(s));
  }
  const std::lock_guard<std::mutex> lock(lock_);
  current_.reset();
  return failed;
}

CacheStats CacheRegistry::stats(const CacheIdentity& identity) const {
  std::shared_ptr<CacheManager> manager;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    const auto place = slots_.find(identity);
    if (place != slots_.end()) manager = place->second->manager;
    const auto past = past_.find(identity);
    if (manager == nullptr) return past == past_.end() ? CacheStats{} : past->second;
  }
  return manager->stats();
}

std::size_t CacheRegistry::ram_bytes() const {
  std::size_t bytes = 0;
  for (const Entry& entry : entries()) {
    if (entry.manager != nullptr) bytes += entry.manager->ram_bytes();
  }
  return bytes;
}

std::vector<CacheRegistry::Entry> CacheRegistry::entries() const {
  const std::lock_guard<std::mutex> lock(lock_);
  std::vector<Entry> all;
  for (const auto& [identity, slot] : slots_) {
    all.push_back({identity, slot->state, slot->leases, slot->manager});
  }
  return all;
}

}  // namespace drafthouse
