#include "cache/prefix_flow.h"

#include <algorithm>
#include <utility>

namespace drafthouse {

PrefixFlow::PrefixFlow(std::shared_ptr<CacheManager> manager, std::string salt)
    : manager_(std::move(manager)), salt_(std::move(salt)) {}

PrefixFlow::PrefixFlow(PrefixFlow&& other) noexcept
    : manager_(std::move(other.manager_)),
      salt_(std::move(other.salt_)),
      begun_(std::exchange(other.begun_, false)),
      stored_pages_(other.stored_pages_) {}

CacheHit PrefixFlow::begin(std::span<const std::uint32_t> prompt, bool wants_draft) {
  CacheHit miss;
  if (manager_ == nullptr) {
    miss.reason = "disabled";
    return miss;
  }
  if (!begun_) {
    manager_->begin_request();
    begun_ = true;
  }
  Result<CacheHit> hit = manager_->lookup(salt_, prompt, wants_draft);
  if (hit.ok()) return std::move(hit).value();
  miss.reason = hit.status().code() == Code::closed ? "cache retired" : hit.status().message();
  return miss;
}

bool PrefixFlow::publish(std::span<const std::uint32_t> tokens, const PrefixPages& pages,
                         bool durable) {
  if (manager_ == nullptr) return false;
  const Result<std::uint32_t> stored = manager_->publish(salt_, tokens, pages, durable);
  if (!stored.ok()) return false;
  stored_pages_ = std::max(stored_pages_, stored.value());
  return stored.value() == pages.front().size();
}

void PrefixFlow::end() {
  if (std::exchange(begun_, false)) manager_->end_request();
}

}  // namespace drafthouse
