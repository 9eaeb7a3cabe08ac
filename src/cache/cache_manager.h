#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "cache/cache_identity.h"
#include "cache/cache_stats.h"
#include "cache/disk_directories.h"
#include "cache/disk_tier.h"
#include "cache/page_store.h"
#include "cache/prefix_index.h"
#include "cache/state_spec.h"
#include "drafthouse/cache_config.h"

namespace drafthouse {

enum class CacheTier : std::uint8_t { none, ram, disk };
std::string_view name_of(CacheTier tier);

// What a lookup found. Holds its pages until it goes.
struct CacheHit {
  std::uint32_t tokens = 0;       // matched: whole pages, fewer than the prompt has
  std::uint32_t draft_begin = 0;  // the draft's context starts at this position; tokens: none
  // Whole pages that some stored text begins with, used or not: a place where a checkpoint of
  // recurrent layers will be wanted again.
  std::uint32_t known_tokens = 0;
  CacheTier tier = CacheTier::none;
  std::string reason = {};  // why not more
  PrefixPages pages = {};   // [group][page]
  // Pages [pages_in_ram, tokens / 64), and draft pages that RAM lacks, still have to be read from
  // disk, by CacheManager::restore(), when `on_disk` is there.
  std::uint32_t pages_in_ram = 0;
  std::shared_ptr<const DiskTier::Found> on_disk = {};
  std::string salt = {};
  std::vector<std::uint32_t> prefix = {};  // the tokens matched, when on_disk is there
};

// The prefix cache of one pair: its pages in RAM and on disk. Thread-safe. Once retired, nothing is
// found or stored any more; pages that sequences hold stay valid.
class CacheManager {
 public:
  // `before` may be null: the retired manager of the same identity. Its entries whose digest is
  // unchanged, and its counters, are taken over; without one counting goes on from `counted`.
  // `disks` may be null: no disk tier, whatever the
  // configuration says. A disk tier that cannot be used now is not an error; a directory that never
  // can (somebody else's, open to others) is.
  static Result<std::shared_ptr<CacheManager>> create(const CacheIdentity& identity,
                                                      const CacheConfig& config, StateSpec spec,
                                                      CacheManager* before, DiskDirectories* disks,
                                                      const CacheStats& counted = {});
  // What create() would refuse.
  static Status check(const CacheIdentity& identity, const CacheConfig& config,
                      const StateSpec& spec, DiskDirectories* disks);
  ~CacheManager();

  const CacheIdentity& identity() const { return identity_; }
  const CacheConfig& config() const { return config_; }
  const StateSpec& spec() const { return spec_; }
  // Where pages come from; engines take their sequences' pages here too.
  const std::shared_ptr<PageStore>& pages() const { return pages_; }
  bool active() const { return !retired_.load(std::memory_order_acquire); }
  void set_trace(bool on) { trace_ = on; }
  bool trace() const { return trace_; }

  // The longest stored prefix of a prompt; at least one of its tokens is left to compute. `closed`
  // when retired.
  Result<CacheHit> lookup(std::string_view salt, std::span<const std::uint32_t> prompt,
                          bool wants_draft);
  // Reads what a hit has on disk, into pages that are then shared with the RAM tier. Takes as long
  // as the disk does and holds no lock meanwhile. What cannot be read shortens the hit, with the
  // reason.
  void restore(CacheHit& hit);
  // Stores whole pages of a prefix: pages[group][page], shared, not copied. Returns the pages
  // stored from the beginning, which is fewer where the limits are met; `closed` when retired.
  // `durable`: a snapshot, offered to the disk tier too.
  Result<std::uint32_t> publish(std::string_view salt, std::span<const std::uint32_t> tokens,
                                const PrefixPages& pages, bool durable);

  Result<std::uint32_t> pin(std::string_view salt, std::span<const std::uint32_t> tokens, bool on);
  // Drops one namespace, or everything. Returns the bytes dropped.
  Result<std::size_t> clear(std::string_view salt);
  Result<std::size_t> clear_all();

  // Frees the least valuable page that only the cache holds; 0 when the rest is needed (or, with
  // `pressure`, is the guaranteed floor). Works on a retired manager too.
  std::size_t evict(bool pressure);
  // Value of what evict() would free, per byte, to compare managers; infinity when nothing can go.
  double cheapest() const;

  CacheStats stats() const;
  // The disk tier, or null.
  DiskTier* disk() { return disk_.get(); }
  std::size_t ram_bytes() const;
  std::size_t ram_pages() const;

  // A request runs: the disk tier writes less while one does. Counted on a retired manager too.
  void begin_request();
  void end_request();
  std::uint32_t active_requests() const { return active_requests_.load(); }

  // Waits until what was published as durable is on disk, or has been given up; cancelled at the
  // deadline.
  Status flush(double deadline_s);

  // Stops all operations and waits for those in progress. An error leaves the manager retired; a
  // later call tries again. Does nothing after a success.
  Status retire();

 private:
  CacheManager(const CacheIdentity& identity, const CacheConfig& config, StateSpec spec);
  Status closed() const;
  std::size_t evict_locked();
  bool admit(std::size_t bytes);
  void look_on_disk(CacheHit& hit, std::string_view salt, std::span<const std::uint32_t> prompt,
                    std::uint32_t pages_max, bool wants_draft);
  void inherit(CacheManager& before);

  const CacheIdentity identity_;
  const CacheConfig config_;
  const StateSpec spec_;
  std::shared_ptr<PageStore> pages_;
  std::unique_ptr<DiskTier> disk_;  // null without one
  double retire_flush_s_ = 0;
  std::atomic<bool> retired_{false};
  std::atomic<bool> trace_{false};
  std::atomic<std::uint32_t> active_requests_{0};
  mutable std::mutex lock_;
  std::unique_ptr<PrefixIndex> index_;
  CacheStats stats_;
  bool closed_ = false;        // retired, and nothing is left to write
  std::string digest_change_;  // the field that made the previous manager's entries useless
};

}  // namespace drafthouse
