#pragma once

#include <memory>
#include <vector>

#include "cache/disk/digest_folder.h"
#include "cache/disk/write_pace.h"
#include "cache/disk/write_plan.h"

namespace drafthouse {

// Writes one run: files of pages, then the manifest, each under a temporary name, brought to disk,
// then renamed; the manifest's name comes last and makes the run exist. On the writer's thread, by
// the holder of the folder's lock.
class RunWriter {
 public:
  // All of it must outlive the writer.
  RunWriter(DigestFolder& folder, WritePlan& plan, WritePace& pace)
      : folder_(folder), plan_(plan), pace_(pace) {}

  // Under the directory's lock: the files, empty but at their full size, so that they are counted.
  Errno make_files(DirectoryUsage::Change& change);
  bool made_files() const { return root_ != nullptr; }
  // Without the lock: the bytes. ECANCELED: the pace was stopped.
  Errno write();
  // Under the lock: the names, each followed by sync_names() without it.
  Errno place_pages(DirectoryUsage::Change& change);
  Errno place_manifest(DirectoryUsage::Change& change);
  Errno sync_names();
  // At last, under the lock: makes the run known; false: what it hangs from has gone.
  bool publish(DirectoryUsage::Change& change);
  // After an error, under the lock: removes what there is.
  void abandon(DirectoryUsage::Change& change);

 private:
  Errno write_pages(std::uint32_t group, DiskFile& file);
  Errno make_file(const std::string& name, std::uint64_t bytes, DirectoryUsage::Change& change,
                  std::unique_ptr<DiskFile>& out);

  DigestFolder& folder_;
  WritePlan& plan_;
  WritePace& pace_;
  std::unique_ptr<DiskFolder> root_;
  std::vector<std::unique_ptr<DiskFile>> pages_;  // null for groups without pages
  std::unique_ptr<DiskFile> manifest_;
};

}  // namespace drafthouse
