#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cache/cache_manager.h"

namespace drafthouse {

// The way of one request through the prefix cache. It begins, looks up, publishes and ends on the
// one manager that it was made with, whatever is current, and goes on without a cache when that one
// is retired meanwhile. Confined to one thread at a time; ends on destruction.
class PrefixFlow {
 public:
  // `manager` may be null: no cache.
  PrefixFlow(std::shared_ptr<CacheManager> manager, std::string salt);
  ~PrefixFlow() { end(); }
  PrefixFlow(PrefixFlow&& other) noexcept;
  PrefixFlow& operator=(PrefixFlow&&) = delete;
  PrefixFlow(const PrefixFlow&) = delete;

  bool caching() const { return manager_ != nullptr && manager_->active(); }
  const CacheManager* manager() const { return manager_.get(); }

  // Counts the request and looks its prompt up. A retired manager gives a miss.
  CacheHit begin(std::span<const std::uint32_t> prompt, bool wants_draft);
  // Stores whole pages; whether the cache took all of them. A retired manager takes nothing.
  // `durable`: a snapshot, for the disk tier too.
  bool publish(std::span<const std::uint32_t> tokens, const PrefixPages& pages, bool durable);
  // Pages that were stored for this request, from the beginning of its text.
  std::uint32_t stored_pages() const { return stored_pages_; }
  void end();

 private:
  std::shared_ptr<CacheManager> manager_;
  std::string salt_;
  bool begun_ = false;
  std::uint32_t stored_pages_ = 0;
};

}  // namespace drafthouse
