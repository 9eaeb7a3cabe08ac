#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/disk/disk_directory.h"
#include "cache/disk/disk_match.h"
#include "cache/disk/state_note.h"
#include "cache/disk/write_plan.h"
#include "cache/state_digest.h"
#include "cache/state_layout.h"
#include "drafthouse/status.h"

namespace drafthouse {

// The stored pages of one digest: the groups that this digest covers, all of a target or all of a
// draft. Sections of one digest and directory share what they know and write, so both are writable.
// Another process (or directory object) that came first is the writer; then this one reads what the
// other publishes, and writes once the other has gone. Thread-safe. Keeps its directory alive.
class DiskSection {
 public:
  // `note`: kept beside the pages, and compared with those of other digests when nothing is stored
  // of this one. mismatch: the digest is open with another layout. What fails on disk is not an
  // error: the section then finds nothing, says so, and tries again.
  static Result<std::shared_ptr<DiskSection>> open(std::shared_ptr<DiskDirectory> directory,
                                                   const StateDigest& digest,
                                                   const StateLayout& layout, StateNote note = {});
  ~DiskSection();
  DiskSection(const DiskSection&) = delete;
  DiskSection& operator=(const DiskSection&) = delete;

  // Whether this process writes the digest now.
  bool writable() const;
  // Why it can only be read, for people ("another process writes it", "it cannot be written
  // (Permission denied)"); empty when it is written here, or when the directory is not used.
  std::string why_read_only() const;
  // The longest stored prefix of whole pages. Opens no file; of a digest that others write, it
  // reads the end of their log when something is missing.
  DiskMatch find(std::string_view salt, std::span<const std::uint32_t> tokens) const;
  // Reads one page, of exactly the group's page size, and checks it. not_found: it has vanished or
  // is out of reach; corrupt: damaged, set aside and counted; internal: the system refused. After
  // any error the contents of `into` must not be used.
  Status read(const DiskMatch& match, std::uint32_t group, std::uint32_t page,
              std::span<std::byte> into) const;
  // Queues what is not stored yet of a snapshot. False: nothing was queued (counted, by cause) and
  // `done` is not called. When the queue has room for a part only, the leading pages are stored and
  // done(false) is called.
  bool offer(DiskSnapshot snapshot);
  // Removes what is stored under a salt, or all, and what waits to be. busy: another process writes
  // the digest.
  Status clear(std::string_view salt);
  Status clear_all();
  // Of this section since it was first opened.
  DiskCounters counters() const;
  const StateLayout& layout() const;
  // Memory that the index takes, about.
  std::size_t memory_bytes() const;

 private:
  DiskSection(std::shared_ptr<DiskDirectory> directory, std::shared_ptr<SectionCore> core);

  std::shared_ptr<DiskDirectory> directory_;
  std::shared_ptr<SectionCore> core_;
};

}  // namespace drafthouse
