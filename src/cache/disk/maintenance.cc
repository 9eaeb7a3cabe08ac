#include "cache/disk/maintenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "cache/disk/digest_folder.h"
#include "cache/disk/hashing.h"

namespace drafthouse {
namespace {

constexpr std::uint64_t kQuarantineBytesMax = std::uint64_t{64} << 20;

// A cache directory. The folders of its digests are opened one at a time: there may be more of them
// than a process may have files.
class OpenDirectory {
 public:
  explicit OpenDirectory(FileSystem& files)
      : log_(nullptr), services_{files, system_clock(), meter_, log_, kQuarantineBytesMax} {}

  // `only`: one digest; not_found when it is not there.
  Status open(const std::string& directory, const std::optional<std::string>& only) {
    Result<std::shared_ptr<DiskVolume>> volume = DiskVolume::open(services_, directory, false);
    if (!volume.ok()) return volume.status();
    volume_ = std::move(volume).value();
    digests_ = volume_->digests();
    if (!only.has_value()) return {};
    std::erase_if(digests_, [&](const std::string& digest) { return digest != *only; });
    if (!digests_.empty()) return {};
    return {Code::not_found, fmt::format("no digest {} in {}", *only, directory)};
  }

  DiskVolume& volume() { return *volume_; }

  // Calls for each digest, with its folder open, until a call fails.
  Status for_each(const std::function<Status(const std::shared_ptr<DigestFolder>&)>& call) {
    for (const std::string& digest : digests_) {
      Result<std::shared_ptr<DigestFolder>> folder =
          DigestFolder::open(volume_, digest, false, nullptr);
      if (!folder.ok() && folder.status().code() == Code::not_found) continue;  // removed meanwhile
      Status status = folder.ok() ? call(folder.value()) : folder.status();
      if (!status.ok()) return status;
    }
    return {};
  }

  Status lock(DirectoryUsage::Change& change) {
    const Errno error = volume_->usage().lock(change);
    return error == 0 ? Status() : volume_->lock_error(error);
  }

  Status count(std::uint64_t& bytes) {
    const Errno error = charged_below(volume_->root(), bytes);
    if (error == 0) return {};
    return {Code::internal,
            fmt::format("cannot read all of {}: {}", volume_->directory(), describe(error))};
  }

 private:
  DiskMeter meter_;
  DiskLog log_;
  DiskServices services_;
  std::shared_ptr<DiskVolume> volume_;
  std::vector<std::string> digests_;
};

// Whether the folder's lock is held now; names the digest in `busy` when somebody else has it.
Result<bool> take_over(DigestFolder& folder, DirectoryUsage::Change& change,
                       std::vector<std::string>& busy) {
  Errno error = 0;
  switch (folder.try_take_over(error, &change)) {
    case LockFile::Outcome::held: return true;
    case LockFile::Outcome::busy: busy.push_back(folder.digest()); return false;
    default:
      return Status(Code::internal,
                    fmt::format("cannot lock digest {}: {}", folder.digest(), describe(error)));
  }
}

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

struct Victim {
  std::int64_t last_use_ns = 0;
  std::uint64_t charged = 0;
  std::string digest;
};

// Which runs go, ends of texts before their beginnings and what was used longest ago first, until
// `bytes` less what they are charged is at most `bytes_max`: how many of each digest.
Result<std::map<std::string, std::uint64_t>> plan_removal(OpenDirectory& open, std::uint64_t bytes,
                                                          std::uint64_t bytes_max,
                                                          PruneReport& report) {
  std::vector<Victim> victims;
  report.busy.clear();
  Status status = open.for_each([&](const std::shared_ptr<DigestFolder>& folder) -> Status {
    if (folder->locked_by_others()) {
      report.busy.push_back(folder->digest());
      return {};
    }
    folder->follow();
    folder->read_uses();
    while (const std::shared_ptr<StoredRun> leaf = folder->oldest_leaf()) {
      victims.push_back({leaf->last_use_ns.load(), leaf->charged, folder->digest()});
      folder->forget_leaf(leaf);
    }
    return {};
  });
  if (!status.ok()) return status;
  // A run's time is never before that of what hangs from it, so each digest's own order stays.
  std::stable_sort(victims.begin(), victims.end(),
                   [](const Victim& a, const Victim& b) { return a.last_use_ns < b.last_use_ns; });
  std::map<std::string, std::uint64_t> going;
  for (const Victim& victim : victims) {
    if (bytes <= bytes_max) break;
    bytes -= std::min(bytes, victim.charged);
    ++going[victim.digest];
    ++report.runs;
    PruneReport::Part& part = part_of(report, victim.digest);
    ++part.runs;
    part.bytes += victim.charged;
  }
  report.bytes_after = bytes;
  return going;
}

// Evicts as planned, less when that is enough, and removes folders that hold nothing.
Status remove_planned(OpenDirectory& open, const std::map<std::string, std::uint64_t>& going,
                      std::uint64_t bytes_max, DirectoryUsage::Change& change,
                      PruneReport& report) {
  return open.for_each([&](const std::shared_ptr<DigestFolder>& folder) -> Status {
    const auto planned = going.find(folder->digest());
    folder->follow();
    if (planned == going.end() && folder->known_pages() > 0) return {};
    if (planned == going.end() && folder->locked_by_others()) return {};
    const Result<bool> ours = take_over(*folder, change, report.busy);
    if (!ours.ok()) return ours.status();
    if (!ours.value()) return {};
    PruneReport::Part part{folder->digest(), 0, 0};
    const std::uint64_t count = planned == going.end() ? 0 : planned->second;
    while (part.runs < count && change.bytes() > bytes_max) {
      const std::shared_ptr<StoredRun> leaf = folder->oldest_leaf();
      if (leaf == nullptr || !folder->evict(leaf, change)) break;
      ++part.runs;
      part.bytes += leaf->charged;
    }
    if (folder->known_pages() == 0) folder->clear_whole(change);
    if (part.runs == 0) return {};
    report.runs += part.runs;
    PruneReport::Part& sum = part_of(report, part.digest);
    sum.runs += part.runs;
    sum.bytes += part.bytes;
    return {};
  });
}

}  // namespace

Result<DirectorySummary> list_disk_cache(FileSystem& files, const std::string& directory) {
  OpenDirectory open(files);
  DirectorySummary summary;
  std::uint64_t known = 0;
  Status status = open.open(directory, std::nullopt);
  if (status.ok()) status = open.count(summary.bytes);
  if (status.ok()) {
    status = open.for_each([&](const std::shared_ptr<DigestFolder>& folder) -> Status {
      summary.digests.push_back(summarise(*folder));
      known += summary.digests.back().bytes;
      return {};
    });
  }
  if (!status.ok()) return status;
  summary.other_bytes = summary.bytes - std::min(known, summary.bytes);
  std::sort(
      summary.digests.begin(), summary.digests.end(),
      [](const DigestSummary& a, const DigestSummary& b) { return a.last_use_ns > b.last_use_ns; });
  return summary;
}

Result<VerifyReport> verify_disk_cache(FileSystem& files, const std::string& directory,
                                       const std::optional<std::string>& digest, bool set_aside) {
  OpenDirectory open(files);
  VerifyReport report;
  Status status = open.open(directory, digest);
  if (status.ok()) {
    status = open.for_each([&](const std::shared_ptr<DigestFolder>& folder) {
      return verify_folder(open, *folder, set_aside, report);
    });
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
  if (dry_run) {
    status = open.count(report.bytes_before);
    if (!status.ok()) return status;
    const Result<std::map<std::string, std::uint64_t>> plan =
        plan_removal(open, report.bytes_before, bytes_max, report);
    if (!plan.ok()) return plan.status();
    return report;
  }
  DirectoryUsage::Change change;
  status = open.lock(change);
  if (!status.ok()) return status;
  change.recount_if_old();
  report.bytes_before = change.bytes();
  // Removals are logged, so a little more may have to go than was planned.
  for (std::uint64_t runs_before = ~std::uint64_t{0}; runs_before != report.runs;) {
    runs_before = report.runs;
    PruneReport plan;
    const Result<std::map<std::string, std::uint64_t>> going =
        plan_removal(open, change.bytes(), bytes_max, plan);
    if (!going.ok()) return going.status();
    report.busy = std::move(plan.busy);
    status = remove_planned(open, going.value(), bytes_max, change, report);
    if (!status.ok()) return status;
  }
  report.bytes_after = change.bytes();
  return report;
}

Result<PruneReport> clear_disk_cache(FileSystem& files, const std::string& directory,
                                     const std::optional<std::string>& digest) {
  OpenDirectory open(files);
  PruneReport report;
  DirectoryUsage::Change change;
  Status status = open.open(directory, digest);
  if (status.ok()) status = open.lock(change);
  if (!status.ok()) return status;
  change.recount_if_old();
  report.bytes_before = change.bytes();
  status = open.for_each([&](const std::shared_ptr<DigestFolder>& folder) -> Status {
    const Result<bool> ours = take_over(*folder, change, report.busy);
    if (!ours.ok()) return ours.status();
    if (!ours.value()) return {};
    PruneReport::Part part{folder->digest(), 0, 0};
    folder->for_each_run([&](const std::shared_ptr<StoredRun>& run) {
      ++part.runs;
      part.bytes += run->charged;
    });
    folder->clear_whole(change);
    report.runs += part.runs;
    report.parts.push_back(std::move(part));
    return {};
  });
  if (!status.ok()) return status;
  report.bytes_after = change.bytes();
  return report;
}

}  // namespace drafthouse
