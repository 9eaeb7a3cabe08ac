#include "cache/disk/evictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace drafthouse {
namespace {

constexpr std::uint64_t kLogSlackMax = std::uint64_t{4} << 20;

}  // namespace

std::uint64_t Evictor::limit() const {
  const std::uint64_t budget = options_.budget_bytes;
  return budget - std::min(budget / 32, kLogSlackMax);
}

bool Evictor::over(std::uint64_t bytes, const DirectoryUsage::Change& change,
                   std::uint64_t freed) const {
  return options_.budget_bytes != 0 && change.bytes() + bytes > limit() && freed < 2 * bytes;
}

std::uint64_t Evictor::free_deficit(std::uint64_t bytes) {
  std::uint64_t free = 0;
  if (options_.free_floor_bytes == 0 || volume_.root().free_bytes(free) != 0) return 0;
  const std::uint64_t wanted = options_.free_floor_bytes + bytes;
  return wanted > free ? wanted - free : 0;
}

void Evictor::prepare(std::uint64_t bytes, const std::vector<std::shared_ptr<DigestFolder>>& held) {
  const bool full = options_.budget_bytes != 0 && volume_.usage().bytes_about() + bytes > limit();
  if (!full && free_deficit(bytes) == 0) return;
  find_others(held);
  for (auto& [digest, other] : others_) {
    other.folder->follow();
    other.folder->read_uses();
  }
}

void Evictor::find_others(const std::vector<std::shared_ptr<DigestFolder>>& held) {
  std::map<std::string, Other> found;
  for (const std::string& digest : volume_.digests()) {
    if (std::any_of(held.begin(), held.end(),
                    [&](const auto& folder) { return folder->digest() == digest; })) {
      continue;
    }
    const auto known = others_.find(digest);
    if (known != others_.end() && known->second.folder->still_ours()) {
      found.insert(*known);
      continue;
    }
    Result<std::shared_ptr<DigestFolder>> folder =
        DigestFolder::open(volume_.shared_from_this(), digest, false, nullptr);
    if (folder.ok()) found.emplace(digest, Other{std::move(folder).value(), false, false});
  }
  others_ = std::move(found);
}

void Evictor::release_others() {
  for (auto& [digest, other] : others_) {
    if (other.locked) other.folder->release_lock();
    other.locked = other.passed = false;
  }
}

Evictor::Room Evictor::make_room(std::uint64_t bytes,
                                 const std::vector<std::shared_ptr<DigestFolder>>& held,
                                 DirectoryUsage::Change& change) {
  if (over(bytes, change, 0)) change.recount_if_old();
  const std::uint64_t deficit = free_deficit(bytes);
  if (!over(bytes, change, 0) && deficit == 0) return Room::made;
  if (bytes > limit() && options_.budget_bytes != 0) return Room::over_budget;
  find_others(held);
  std::uint64_t freed = 0;
  std::uint64_t runs = 0;
  while (over(bytes, change, freed) || freed < deficit) {
    std::shared_ptr<StoredRun> run;
    const std::shared_ptr<DigestFolder> folder = oldest(held, change, run);
    if (folder == nullptr) break;
    const std::uint64_t before = change.bytes();
    if (!folder->evict(run, change)) continue;
    freed += before > change.bytes() ? before - change.bytes() : 0;
    if (++runs > kRunPagesMax) break;
  }
  release_others();
  if (over(bytes, change, freed)) return Room::over_budget;
  // Files that others still have open give their space back later; that is not waited for.
  return freed >= deficit || free_deficit(bytes) == 0 ? Room::made : Room::under_free_floor;
}

std::shared_ptr<DigestFolder> Evictor::oldest(
    const std::vector<std::shared_ptr<DigestFolder>>& held, DirectoryUsage::Change& change,
    std::shared_ptr<StoredRun>& run) {
  for (;;) {
    std::shared_ptr<DigestFolder> best;
    Other* other_best = nullptr;
    run = nullptr;
    const auto consider = [&](const std::shared_ptr<DigestFolder>& folder, Other* other) {
      std::shared_ptr<StoredRun> leaf = folder->oldest_leaf();
      if (leaf == nullptr) return;
      if (run != nullptr && leaf->last_use_ns.load() >= run->last_use_ns.load()) return;
      run = std::move(leaf);
      best = folder;
      other_best = other;
    };
    for (const std::shared_ptr<DigestFolder>& folder : held) consider(folder, nullptr);
    for (auto& [digest, other] : others_) {
      if (!other.passed) consider(other.folder, &other);
    }
    if (other_best == nullptr || other_best->locked) return best;
    // With the lock the folder is read anew: what was oldest may have changed.
    Errno error = 0;
    if (best->try_take_over(error, &change) == LockFile::Outcome::held) {
      other_best->locked = true;
    } else {
      other_best->passed = true;
    }
  }
}

}  // namespace drafthouse
