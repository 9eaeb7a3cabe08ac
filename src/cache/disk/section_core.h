#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "cache/disk/digest_folder.h"
#include "cache/disk/disk_match.h"
#include "cache/disk/write_plan.h"

namespace drafthouse {

class DiskCore;

// What a DiskSection and the jobs of its directory's writer share. `folder` comes and goes with the
// directory; without one everything is a miss.
class SectionCore : public std::enable_shared_from_this<SectionCore> {
 public:
  SectionCore(std::shared_ptr<DiskCore> core, const StateDigest& digest, StateLayout layout,
              StateNote note);

  const StateLayout& layout() const { return layout_; }
  const StateDigest& digest() const { return digest_; }
  DiskMeter& meter() { return *meter_; }
  const DiskMeter& meter() const { return *meter_; }
  DiskCore& core() { return *core_; }
  std::shared_ptr<DigestFolder> folder() const;
  bool writable() const;
  std::string why_read_only() const;

  // Any thread.
  DiskMatch find(std::string_view salt, std::span<const std::uint32_t> tokens);
  Status read(const DiskMatch& match, std::uint32_t group, std::uint32_t page,
              std::span<std::byte> into);
  bool offer(DiskSnapshot snapshot);
  Status clear(const std::optional<std::string>& salt);

  // On the writer's thread.
  void maintain(const std::shared_ptr<DiskVolume>& volume);
  // Whether all of it is stored.
  bool write(const DiskSnapshot& snapshot);

 private:
  // What of a snapshot is not stored. Of a draft's context only what the snapshot has.
  std::vector<MissingPage> missing_of(const DigestFolder& folder, const RootName& root,
                                      const DiskSnapshot& snapshot) const;
  bool lacks_pages(const DiskSnapshot& snapshot, const std::vector<MissingPage>& missing) const;
  std::size_t fit_into_queue(DiskSnapshot& snapshot, std::vector<MissingPage>& missing,
                             bool& shortened);
  std::string why_not_more(const IndexMatch& found, std::span<const std::uint32_t> tokens) const;
  Status damaged(const std::shared_ptr<DigestFolder>& folder, const std::shared_ptr<StoredRun>& run,
                 const std::string& why);
  // Compares with the notes of the same models' other digests.
  std::string changed_since(DiskVolume& volume) const;
  void say_who_holds(LockFile::Outcome outcome, Errno error);

  std::shared_ptr<DiskCore> core_;
  StateDigest digest_;
  StateLayout layout_;
  const StateNote note_;
  std::string name_;                  // hex
  std::shared_ptr<DiskMeter> meter_;  // the folder counts here too
  mutable std::mutex mutex_;
  std::shared_ptr<DigestFolder> folder_;
  std::string why_read_only_;  // while others hold the lock, or nobody can
  std::string changed_;        // the field by which stored state of these models differs, or empty

  // Writer's thread only.
  const DiskSnapshot* writing_ = nullptr;
  bool cleared_ = false;  // while it was being written
  bool noted_ = false;    // in `folder_`
};

}  // namespace drafthouse
