#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/disk/directory_usage.h"
#include "cache/disk/disk_index.h"
#include "cache/disk/disk_volume.h"
#include "cache/disk/index_log.h"
#include "cache/disk/lock_file.h"
#include "cache/disk/state_note.h"
#include "cache/disk/stored_run.h"

namespace drafthouse {

// DIR/v1/<digest>/: the runs of one digest, on disk and as an index. Whoever holds the folder's
// lock may write and remove in it; others read, and follow the index log. Calls that change files
// come from one thread (the writer's) and need the lock; find, follow and the getters may come from
// any thread.
class DigestFolder {
 public:
  // `create`: makes the folder when missing. `layout`: when given, runs of another shape are
  // damaged. `meter`: counts here instead of in the directory's.
  static Result<std::shared_ptr<DigestFolder>> open(std::shared_ptr<DiskVolume> volume,
                                                    const std::string& digest, bool create,
                                                    const StateLayout* layout,
                                                    std::shared_ptr<DiskMeter> meter = nullptr);

  DiskVolume& volume() { return *volume_; }
  const std::string& digest() const { return digest_; }

  // Takes the lock if nobody holds it, and then puts the folder in order: temporary files and files
  // without a manifest go, what is damaged is set aside, the log is made to fit. `change`: of a
  // caller who has the directory's lock.
  LockFile::Outcome try_take_over(Errno& error, DirectoryUsage::Change* change = nullptr);
  bool holds_lock() const { return holds_lock_.load(); }
  void release_lock();
  // False when the folder or, for the holder, the lock file has been removed or replaced by others.
  bool still_ours();

  // Reads what others have published; a holder knows already.
  void follow();
  // Looks at every manifest instead of the log. One line for each that is damaged.
  std::vector<std::string> read_manifests();
  // Times of use of runs that came from the log.
  void read_uses();
  // Asks without taking the lock for longer than that.
  bool locked_by_others();

  IndexMatch find(const RootName& root, std::span<const std::uint32_t> tokens,
                  const StateLayout& layout);
  std::uint32_t known(const RootName& root, std::span<const std::uint32_t> tokens) const;
  std::vector<MissingPage> missing(const RootName& root, std::span<const std::uint32_t> tokens,
                                   const StateLayout& layout) const;
  // The file with a group's pages of a run, its header checked. corrupt: damaged; not_found: gone.
  Status open_pages(StoredRun& run, std::uint32_t group, std::shared_ptr<DiskFile>& out);
  // Keeps a run from being found again until it is read anew from disk.
  void forget(const StoredRun& run);
  bool knows(const StoredRun& run) const;
  void mark_used(const std::shared_ptr<StoredRun>& run);
  void mark_prefix_used(const RootName& root, std::span<const std::uint32_t> tokens,
                        const StateLayout& layout);

  // What follows is for the holder, on its thread.
  Errno open_root(const RootName& root, bool create, std::unique_ptr<DiskFolder>& out);
  // The run that `record` will hang from, its `holds` raised; nullptr: it has gone.
  std::shared_ptr<StoredRun> hold_parent(const RunRecord& record);
  // Makes a run whose files are all in place known here and to others; false when what it hangs
  // from has gone.
  bool publish(std::shared_ptr<StoredRun> run, DirectoryUsage::Change& change);
  // The leaf used longest ago, by whatever process; nullptr: there is none that may go.
  std::shared_ptr<StoredRun> oldest_leaf();
  // Removes a leaf, manifest first; false when it is none or somebody reads it. The run that it
  // hangs from counts as used when it was.
  bool evict(const std::shared_ptr<StoredRun>& run, DirectoryUsage::Change& change);
  // Like evict(), in memory only: to see what would go.
  void forget_leaf(const std::shared_ptr<StoredRun>& run);
  // Sets a damaged run aside; what hangs from it is removed.
  void set_aside(const RootName& root, const RunId& run, DirectoryUsage::Change& change);
  void clear(const std::optional<RootName>& root, DirectoryUsage::Change& change);
  // clear(), and whatever else of this format is in the folder, and the folder when nothing is
  // left.
  void clear_whole(DirectoryUsage::Change& change);
  // Brings times of use to disk.
  void write_uses();
  Errno keep_note(const StateNote& note, DirectoryUsage::Change& change) {
    return keep_state_note(*folder_, note, change);
  }

  std::optional<StateNote> note() const { return read_state_note(*folder_); }
  void for_each_run(const std::function<void(const std::shared_ptr<StoredRun>&)>& call) const;
  std::size_t memory_bytes() const;
  // Runs that nothing hangs from, and pages whose tokens are known.
  std::size_t leaves() const;
  std::size_t known_pages() const;

 private:
  struct Listing;    // of one root
  struct Inventory;  // of all of them

  DigestFolder(std::shared_ptr<DiskVolume> volume, std::string digest)
      : volume_(std::move(volume)), digest_(std::move(digest)) {}

  DiskMeter& meter() { return own_meter_ != nullptr ? *own_meter_ : volume_->services().meter; }

  // digest_load.cc
  void put_in_order(DirectoryUsage::Change* change);
  void read_log(Inventory& found);
  void read_roots(Inventory& found);
  void read_root(const RootName& root, Inventory& found);
  void read_run(Listing& listing, const RunId& id, Inventory& found);
  void build_index(Inventory& found);
  void clean_up(const Inventory& found, DirectoryUsage::Change& change);
  void apply_news(IndexLog::News& news);
  std::string check_record(const RunRecord& record, const RootName& root, const RunId& id) const;

  void remove_runs(const std::vector<std::shared_ptr<StoredRun>>& runs,
                   DirectoryUsage::Change& change);
  // bound_quarantine() afterwards.
  void move_to_quarantine(DiskFolder& root, const RunId& run, DirectoryUsage::Change& change);
  void bound_quarantine(DirectoryUsage::Change& change);
  void append_to_log(std::span<const std::byte> record, DirectoryUsage::Change& change);
  void rewrite_log(DirectoryUsage::Change& change);

  std::shared_ptr<DiskVolume> volume_;
  std::string digest_;
  std::optional<StateLayout> layout_;
  std::shared_ptr<DiskMeter> own_meter_;
  std::unique_ptr<DiskFolder> folder_;
  LockFile lock_;
  std::atomic<bool> holds_lock_{false};

  std::mutex log_mutex_;  // taken before mutex_
  std::unique_ptr<IndexLog> log_;
  std::size_t log_records_ = 0;
  bool log_incomplete_ = false;
  double next_scan_s_ = -1e300;  // while the log is no help
  std::set<RunId> damaged_;      // met by a reader

  mutable std::mutex mutex_;
  std::unique_ptr<DiskIndex> index_;
  std::vector<std::shared_ptr<StoredRun>> uses_;  // whose time of use is not yet on disk
};

// Removes a file and takes its charge from the record; a file that is not there is fine.
Errno remove_counted(DiskFolder& folder, const std::string& name, DirectoryUsage::Change& change);

}  // namespace drafthouse
