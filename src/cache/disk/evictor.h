#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cache/disk/digest_folder.h"
#include "cache/disk/disk_options.h"

namespace drafthouse {

// Keeps a cache directory within its budget, whatever models and processes fill it: removes the
// runs that were used longest ago, in folders whose lock this process holds or can take now. On the
// writer's thread.
class Evictor {
 public:
  // Both must outlive this.
  Evictor(DiskVolume& volume, const DiskOptions& options) : volume_(volume), options_(options) {}

  enum class Room : std::uint8_t { made, over_budget, under_free_floor };

  // Reads, without any lock, what make_room() would need to know of folders of others.
  void prepare(std::uint64_t bytes, const std::vector<std::shared_ptr<DigestFolder>>& held);
  // Under the directory's lock: frees what is missing for `bytes` more. While a budget that was
  // made smaller is exceeded, a write goes ahead when it freed twice what it needs. `held`: folders
  // whose lock is held.
  Room make_room(std::uint64_t bytes, const std::vector<std::shared_ptr<DigestFolder>>& held,
                 DirectoryUsage::Change& change);
  // What may be stored: the budget less a little for logs that grow.
  std::uint64_t limit() const;

 private:
  struct Other {
    std::shared_ptr<DigestFolder> folder;
    bool locked = false;
    bool passed = false;  // somebody else holds it, for this round
  };

  bool over(std::uint64_t bytes, const DirectoryUsage::Change& change, std::uint64_t freed) const;
  std::uint64_t free_deficit(std::uint64_t bytes);
  // The folder with the run used longest ago, its lock held; nullptr: none is left.
  std::shared_ptr<DigestFolder> oldest(const std::vector<std::shared_ptr<DigestFolder>>& held,
                                       DirectoryUsage::Change& change,
                                       std::shared_ptr<StoredRun>& run);
  // Opens the folders of digests that are not held, at most kOthersOpenMax; `next`: those after the
  // ones that are open now. How many such digests there are.
  std::size_t find_others(const std::vector<std::shared_ptr<DigestFolder>>& held, bool next);
  // Gives locks back and removes the folders that eviction left empty.
  void release_others(DirectoryUsage::Change& change);

  DiskVolume& volume_;
  const DiskOptions& options_;
  std::map<std::string, Other> others_;  // by digest
  std::string first_;                    // where they begin, when not all are open at once
  std::string last_;
};

}  // namespace drafthouse
