#include "cache/disk/maintenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "cache/disk/digest_folder.h"
#include "cache/disk/hashing.h"

namespace drafthouse {
namespace {

constexpr std::uint64_t kQuarantineBytesMax = std::uint64_t{64} << 20;

// A cache directory with the folders of its digests.
class OpenDirectory {
 public:
  explicit OpenDirectory(FileSystem& files)
      : log_(nullptr), services_{files, system_clock(), meter_, log_, kQuarantineBytesMax} {}

  // `only`: of one digest; not_found when it is not there.
  Status open(const std::string& directory, const std::optional<std::string>& only) {
    Result<std::shared_ptr<DiskVolume>> volume = DiskVolume::open(services_, directory, false);
    if (!volume.ok()) return volume.status();
    volume_ = std::move(volume).value();
    for (const std::string& digest : volume_->digests()) {
      if (only.has_value() && digest != *only) continue;
      Result<std::shared_ptr<DigestFolder>> folder =
          DigestFolder::open(volume_, digest, false, nullptr);
      if (folder.ok()) folders_.push_back(std::move(folder).value());
    }
    if (only.has_value() && folders_.empty()) {
      return {Code::not_found, fmt::format("no digest {} in {}", *only, directory)};
    }
    return {};
  }

  DiskVolume& volume() { return *volume_; }
  std::vector<std::shared_ptr<DigestFolder>>& folders() { return folders_; }

  Status lock(DirectoryUsage::Change& change) {
    const Errno error = volume_->usage().lock(change);
    if (error == 0) return {};
    return {Code::busy, fmt::format("cannot lock {}: {}", volume_->directory(), describe(error))};
  }
  // Keeps the folders whose lock is to be had; the others are named in `busy`.
  void take_locks(DirectoryUsage::Change& change, std::vector<std::string>& busy) {
    std::erase_if(folders_, [&](const std::shared_ptr<DigestFolder>& folder) {
      Errno error = 0;
      if (folder->try_take_over(error, &change) == LockFile::Outcome::held) return false;
      busy.push_back(folder->digest());
      return true;
    });
  }

 private:
  DiskMeter meter_;
  DiskLog log_;
  DiskServices services_;
  std::shared_ptr<DiskVolume> volume_;
  std::vector<std::shared_ptr<DigestFolder>> folders_;
};

DigestSummary summarise(DigestFolder& folder) {
  folder.follow();
  folder.read_uses();
  DigestSummary summary;
  summary.digest = folder.digest();
  if (std::optional<StateNote> note = folder.note()) {
    summary.models = std::move(note->models);
    summary.fields = std::move(note->fields);
  }
  summary.locked = folder.locked_by_others();
  summary.snapshots = folder.leaves();
  summary.tokens = folder.known_pages() * kPageTokens;
  std::set<RootName> roots;
  folder.for_each_run([&](const std::shared_ptr<StoredRun>& run) {
    roots.insert(run->record.root);
    ++summary.runs;
    summary.bytes += run->charged;
    for (const RunGroup& group : run->record.groups) summary.pages += group.pages.size();
    summary.last_use_ns = std::max(summary.last_use_ns, run->last_use_ns.load());
  });
  summary.tenants = roots.size();
  return summary;
}

// Empty when all pages are right.
std::string check_run(DigestFolder& folder, StoredRun& run, VerifyReport& report) {
  ++report.runs;
  for (std::uint32_t g = 0; g < run.record.groups.size(); ++g) {
    const RunGroup& group = run.record.groups[g];
    if (group.pages.empty()) continue;
    std::shared_ptr<DiskFile> file;
    const Status opened = folder.open_pages(run, g, file);
    if (opened.code() == Code::not_found) return {};  // removed meanwhile
    if (!opened.ok()) return opened.message();
    std::vector<std::byte> bytes(group.page_bytes);
    for (std::size_t i = 0; i < group.pages.size(); ++i) {
      std::size_t got = 0;
      const Errno error = file->read(kPagesHeaderBytes + i * group.page_bytes, bytes, got);
      if (error != 0) return fmt::format("{}: {}", pages_name(run.record.id, g), describe(error));
      if (got != bytes.size() || checksum(bytes) != group.pages[i].checksum) {
        return fmt::format("page {} in {} is damaged", group.pages[i].page,
                           pages_name(run.record.id, g));
      }
      ++report.pages;
      report.bytes += got;
    }
  }
  return {};
}

Status verify_folder(OpenDirectory& open, DigestFolder& folder, bool set_aside,
                     VerifyReport& report) {
  std::vector<std::string> lines = folder.read_manifests();
  std::vector<std::shared_ptr<StoredRun>> runs;
  folder.for_each_run([&](const std::shared_ptr<StoredRun>& run) { runs.push_back(run); });
  std::vector<std::shared_ptr<StoredRun>> damaged;
  for (const std::shared_ptr<StoredRun>& run : runs) {
    std::string why = check_run(folder, *run, report);
    if (why.empty()) continue;
    lines.push_back(std::move(why));
    damaged.push_back(run);
  }
  const std::size_t found = lines.size();
  for (std::string& line : lines) {
    report.damaged.push_back(folder.digest().substr(0, 16) + ": " + std::move(line));
  }
  if (!set_aside || found == 0) return {};
  DirectoryUsage::Change change;
  Status locked = open.lock(change);
  if (!locked.ok()) return locked;
  Errno error = 0;
  // This sets aside what the manifests alone show.
  if (folder.try_take_over(error, &change) != LockFile::Outcome::held) {
    report.busy.push_back(folder.digest());
    return {};
  }
  for (const std::shared_ptr<StoredRun>& run : damaged) {
    if (folder.knows(*run)) folder.set_aside(run->record.root, run->record.id, change);
  }
  report.set_aside += found;
  folder.release_lock();
  return {};
}

PruneReport::Part& part_of(PruneReport& report, const std::string& digest) {
  for (PruneReport::Part& part : report.parts) {
    if (part.digest == digest) return part;
  }
  return report.parts.emplace_back(PruneReport::Part{digest, 0, 0});
}

}  // namespace

Result<DirectorySummary> list_disk_cache(FileSystem& files, const std::string& directory) {
  OpenDirectory open(files);
  Status status = open.open(directory, std::nullopt);
  if (!status.ok()) return status;
  DirectorySummary summary;
  summary.bytes = charged_below(open.volume().root());
  std::uint64_t known = 0;
  for (const std::shared_ptr<DigestFolder>& folder : open.folders()) {
    summary.digests.push_back(summarise(*folder));
    known += summary.digests.back().bytes;
  }
  summary.other_bytes = summary.bytes - std::min(known, summary.bytes);
  std::sort(
      summary.digests.begin(), summary.digests.end(),
      [](const DigestSummary& a, const DigestSummary& b) { return a.last_use_ns > b.last_use_ns; });
  return summary;
}

Result<VerifyReport> verify_disk_cache(FileSystem& files, const std::string& directory,
                                       const std::optional<std::string>& digest, bool set_aside) {
  OpenDirectory open(files);
  Status status = open.open(directory, digest);
  VerifyReport report;
  for (std::size_t i = 0; status.ok() && i < open.folders().size(); ++i) {
    status = verify_folder(open, *open.folders()[i], set_aside, report);
  }
  if (!status.ok()) return status;
  return report;
}

Result<PruneReport> prune_disk_cache(FileSystem& files, const std::string& directory,
                                     std::uint64_t bytes_max, bool dry_run) {
  OpenDirectory open(files);
  Status status = open.open(directory, std::nullopt);
  if (!status.ok()) return status;
  PruneReport report;
  DirectoryUsage::Change change;
  if (dry_run) {
    report.bytes_before = charged_below(open.volume().root());
    std::erase_if(open.folders(), [&](const std::shared_ptr<DigestFolder>& folder) {
      if (folder->locked_by_others()) report.busy.push_back(folder->digest());
      return folder->locked_by_others();
    });
    for (const std::shared_ptr<DigestFolder>& folder : open.folders()) {
      folder->follow();
      folder->read_uses();
    }
  } else {
    status = open.lock(change);
    if (!status.ok()) return status;
    change.recount_if_old();
    report.bytes_before = change.bytes();
    open.take_locks(change, report.busy);
  }
  std::uint64_t bytes = dry_run ? report.bytes_before : change.bytes();
  while (bytes > bytes_max) {
    std::shared_ptr<StoredRun> oldest;
    DigestFolder* from = nullptr;
    for (const std::shared_ptr<DigestFolder>& folder : open.folders()) {
      const std::shared_ptr<StoredRun> leaf = folder->oldest_leaf();
      if (leaf == nullptr) continue;
      if (oldest != nullptr && oldest->last_use_ns.load() <= leaf->last_use_ns.load()) continue;
      oldest = leaf;
      from = folder.get();
    }
    if (oldest == nullptr) break;
    if (dry_run) {
      from->forget_leaf(oldest);
      bytes -= std::min(bytes, oldest->charged);
    } else {
      from->evict(oldest, change);
      bytes = change.bytes();
    }
    PruneReport::Part& part = part_of(report, from->digest());
    ++report.runs;
    ++part.runs;
    part.bytes += oldest->charged;
  }
  report.bytes_after = bytes;
  return report;
}

Result<PruneReport> clear_disk_cache(FileSystem& files, const std::string& directory,
                                     const std::optional<std::string>& digest) {
  OpenDirectory open(files);
  Status status = open.open(directory, digest);
  if (!status.ok()) return status;
  DirectoryUsage::Change change;
  status = open.lock(change);
  if (!status.ok()) return status;
  PruneReport report;
  change.recount_if_old();
  report.bytes_before = change.bytes();
  open.take_locks(change, report.busy);
  for (const std::shared_ptr<DigestFolder>& folder : open.folders()) {
    PruneReport::Part part{folder->digest(), 0, 0};
    folder->for_each_run([&](const std::shared_ptr<StoredRun>& run) {
      ++part.runs;
      part.bytes += run->charged;
    });
    folder->clear_whole(change);
    report.runs += part.runs;
    report.parts.push_back(std::move(part));
  }
  report.bytes_after = change.bytes();
  return report;
}

}  // namespace drafthouse
