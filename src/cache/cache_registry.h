#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cache/cache_manager.h"

namespace drafthouse {

class CacheRegistry;

// An engine's hold on the slot of its identity. While somebody holds one, only its holder may
// change the slot's configuration. Confined to one thread at a time; the registry must outlive it.
class CacheLease {
 public:
  CacheLease() = default;
  ~CacheLease() { release(); }
  CacheLease(CacheLease&& other) noexcept;
  CacheLease& operator=(CacheLease&& other) noexcept;
  CacheLease(const CacheLease&) = delete;

  // Null with caching off.
  const std::shared_ptr<CacheManager>& manager() const { return manager_; }
  explicit operator bool() const { return registry_ != nullptr; }
  void release();

 private:
  friend class CacheRegistry;
  CacheRegistry* registry_ = nullptr;
  CacheIdentity identity_;
  std::shared_ptr<CacheManager> manager_;
};

enum class SlotState : std::uint8_t { building, active, retiring, failed, off };

// The cache managers of a host, one per identity. What happens to one identity never touches
// another.
//
// Thread-safe. The map lock covers map operations only: building and retiring a manager happen
// outside it, and whoever wants the same slot waits on the slot.
class CacheRegistry {
 public:
  // `disks` must outlive it; null: no disk tiers.
  explicit CacheRegistry(DiskDirectories* disks = nullptr) : disks_(disks) {}
  CacheRegistry(const CacheRegistry&) = delete;
  CacheRegistry& operator=(const CacheRegistry&) = delete;

  // The manager of an identity, made when it is missing and replaced when configuration or state
  // digest differ; entries whose digest is unchanged go over to the new one. conflict when another
  // engine holds a lease on the slot with another configuration; the error of the old manager's
  // retirement when that fails (the slot keeps it, and a later call tries again). With caching off
  // the lease has no manager, and one that is there is retired. `own`: the caller's lease on the
  // same identity, which is released by a success.
  Result<CacheLease> resolve(const CacheIdentity& identity, const CacheConfig& config,
                             StateSpec spec, CacheLease* own = nullptr);

  // As resolve(), but never makes one: what does not match is retired and removed.
  std::shared_ptr<CacheManager> sync(const CacheIdentity& identity, const CacheConfig& config,
                                     const StateSpec& spec);
  // What stands in the slot, whatever its configuration; null when nothing active does. Never
  // blocks.
  std::shared_ptr<CacheManager> find(const CacheIdentity& identity) const;
  // The manager that was resolved last, for single-model figures; null when it has gone. Never
  // blocks.
  std::shared_ptr<CacheManager> current() const;

  // Retires one manager; an unknown identity is nothing to do.
  Status shutdown(const CacheIdentity& identity);
  // Retires all. Those that failed stay, and are named.
  std::vector<std::pair<CacheIdentity, Status>> shutdown();

  // What was done for an identity since it was first resolved; its figures outlive its managers.
  CacheStats stats(const CacheIdentity& identity) const;

  struct Entry {
    CacheIdentity identity;
    SlotState state = SlotState::off;
    std::uint32_t leases = 0;
    std::shared_ptr<CacheManager> manager;  // null with caching off
  };
  std::vector<Entry> entries() const;
  // Of all managers together.
  std::size_t ram_bytes() const;

 private:
  friend class CacheLease;

  struct Slot {
    SlotState state = SlotState::off;
    std::uint32_t leases = 0;
    std::optional<CacheConfig> config;  // of the last success
    StateSpec spec;
    std::shared_ptr<CacheManager> manager;
    std::condition_variable changed;
  };

  using SlotRef = std::shared_ptr<Slot>;
  // Waits until nobody builds or retires in the slot. The slot may have left the map meanwhile.
  static void wait_until_settled(std::unique_lock<std::mutex>& lock, const SlotRef& slot);
  // Whether a manager of this configuration could take over, so that a refusal leaves the one that
  // is there at work. Outside the lock.
  Status check(std::unique_lock<std::mutex>& lock, const SlotRef& slot, const CacheConfig& config,
               const StateSpec& spec);
  // Retires the slot's manager outside the lock. On success the slot has none.
  Status retire(std::unique_lock<std::mutex>& lock, const SlotRef& slot);
  void erase_if_empty(const CacheIdentity& identity, const SlotRef& slot);
  void release(const CacheIdentity& identity);

  DiskDirectories* disks_;
  mutable std::mutex lock_;
  std::map<CacheIdentity, SlotRef> slots_;
  std::map<CacheIdentity, CacheStats> past_;  // of identities whose last manager has been retired
  std::optional<CacheIdentity> current_;
};

}  // namespace drafthouse
