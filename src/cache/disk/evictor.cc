#include "cache/disk/evictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace drafthouse {
namespace {

constexpr std::uint64_t kLogSlackMax = std::uint64_t{4} << 20;
// Each takes two or three descriptors of the process. With more digests what was used longest ago
// is looked for among so many at a time.
constexpr std::size_t kOthersOpenMax = 64;

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
  find_others(held, true);
  for (auto& [digest, other] : others_) {
    other.folder->follow();
    other.folder->read_uses();
  }
}

std::size_t Evictor::find_others(const std::vector<std::shared_ptr<DigestFolder>>& held,
                                 bool next) {
  std::vector<std::string> digests = volume_.digests();
  std::erase_if(digests, [&](const std::string& digest) {
    return std::any_of(held.begin(), held.end(),
                       [&](const auto& folder) { return folder->digest() == digest; });
  });
  const std::size_t count = digests.size();
  if (count > kOthersOpenMax) {
    const auto begin = next ? std::upper_bound(digests.begin(), digests.end(), last_)
                            : std::lower_bound(digests.begin(), digests.end(), first_);
    std::rotate(digests.begin(), begin, digests.end());
    digests.resize(kOthersOpenMax);
    first_ = digests.front();
    last_ = digests.back();
  }
  std::map<std::string, Other> found;
  for (const std::string& digest : digests) {
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
  return count;
}

void Evictor::release_others(DirectoryUsage::Change& change) {
  for (auto entry = others_.begin(); entry != others_.end();) {
    Other& other = entry->second;
    Errno error = 0;
    const bool empty = other.folder->known_pages() == 0 && !other.passed &&
                       other.folder->try_take_over(error, &change) == LockFile::Outcome::held &&
                       other.folder->known_pages() == 0;
    if (empty) other.folder->clear_whole(change);
    other.folder->release_lock();
    other.locked = other.passed = false;
    entry = empty ? others_.erase(entry) : std::next(entry);
  }
}

Evictor::Room Evictor::make_room(std::uint64_t bytes,
                                 const std::vector<std::shared_ptr<DigestFolder>>& held,
                                 DirectoryUsage::Change& change) {
  if (over(bytes, change, 0)) change.recount_if_old();
  const std::uint64_t deficit = free_deficit(bytes);
  if (!over(bytes, change, 0) && deficit == 0) return Room::made;
  if (bytes > limit() && options_.budget_bytes != 0) return Room::over_budget;
  const std::size_t others = find_others(held, false);
  std::size_t seen = others_.size();
  std::uint64_t freed = 0;
  std::uint64_t runs = 0;
  while (over(bytes, change, freed) || freed < deficit) {
    std::shared_ptr<StoredRun> run;
    const std::shared_ptr<DigestFolder> folder = oldest(held, change, run);
    if (folder == nullptr) {
      if (seen >= others) break;
      release_others(change);
      find_others(held, true);
      seen += kOthersOpenMax;
      continue;
    }
    const std::uint64_t before = change.bytes();
    if (!folder->evict(run, change)) continue;
    freed += before > change.bytes() ? before - change.bytes() : 0;
    if (++runs > kRunPagesMax) break;
  }
  release_others(change);
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
