// How the index of a digest's folder comes to be: from the log, checked against the names that are
// there, or from the manifests alone. What stands in a manifest's place decides; the log spares
// reading each of them.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>
#include <utility>

#include "cache/disk/digest_folder.h"

namespace drafthouse {
namespace {

constexpr std::size_t kLogSpareRecords = 128;
constexpr double kScanSeconds = 3;  // between two looks at all manifests by a reader

struct FileOfRun {
  RootName root;
  std::string name;
};

struct DamagedRun {
  RootName root;
  RunId id;
  std::string why;
};

}  // namespace

struct DigestFolder::Listing {
  RootName root;
  std::unique_ptr<DiskFolder> folder;
  std::unordered_set<std::string> names;
};

struct DigestFolder::Inventory {
  std::unordered_map<RunId, RunRecord, HexNameHash<16>> logged;
  std::vector<std::shared_ptr<StoredRun>> runs;
  std::vector<DamagedRun> damaged;
  std::vector<FileOfRun> leftovers;
  bool all_read = true;  // the system refused nothing
  bool log_fits = true;  // the log tells of all runs
};

std::string DigestFolder::check_record(const RunRecord& record, const RootName& root,
                                       const RunId& id) const {
  if (to_hex(record.digest.bytes.data(), record.digest.bytes.size()) != digest_) {
    return "it belongs to another digest";
  }
  if (record.root != root || record.id != id) return "it belongs to another place";
  if (!layout_.has_value()) return {};
  const std::vector<GroupLayout>& groups = layout_->groups;
  const bool same_shape = std::equal(
      groups.begin(), groups.end(), record.groups.begin(), record.groups.end(),
      [](const GroupLayout& a, const RunGroup& b) { return a.page_bytes == b.page_bytes; });
  return same_shape ? std::string() : "its pages have another shape";
}

void DigestFolder::put_in_order(DirectoryUsage::Change* change) {
  Inventory found;
  {
    const std::lock_guard<std::mutex> lock(log_mutex_);
    read_log(found);
    read_roots(found);
    build_index(found);
  }
  const DiskServices& services = volume_->services();
  if (!found.damaged.empty()) {
    services.log.say(fmt::format("disk cache {}: {} damaged entries of {} set aside ({})",
                                 volume_->directory(), found.damaged.size(), digest_.substr(0, 16),
                                 found.damaged.front().why));
  }
  const bool garbage = log_records_ > 2 * (found.runs.size() + kLogSpareRecords);
  log_incomplete_ = !found.log_fits || garbage;
  if (found.leftovers.empty() && found.damaged.empty() && !log_incomplete_) return;
  if (change != nullptr) return clean_up(found, *change);
  DirectoryUsage::Change own;
  if (volume_->usage().lock(own) == 0) clean_up(found, own);
}

void DigestFolder::read_log(Inventory& found) {
  log_ = std::make_unique<IndexLog>(*folder_);
  IndexLog::News news;
  const Errno error = log_->read_news(news);
  found.log_fits = error == 0 && !news.damaged;
  log_records_ = news.records.size();
  for (DecodedRecord& record : news.records) {
    const RunId id = record.run.id;
    if (record.kind == DecodedRecord::Kind::removal) {
      found.logged.erase(id);
    } else {
      found.logged.insert_or_assign(id, std::move(record.run));
    }
  }
}

void DigestFolder::read_roots(Inventory& found) {
  std::vector<FolderEntry> entries;
  if (folder_->list(entries) != 0) {
    found.all_read = false;
    return;
  }
  for (const FolderEntry& entry : entries) {
    const std::optional<RootName> root = parse_root(entry.name);
    if (entry.is_folder && root.has_value()) read_root(*root, found);
    if (entry.name == std::string(kIndexName) + kTemporarySuffix) found.log_fits = false;
  }
}

void DigestFolder::read_root(const RootName& root, Inventory& found) {
  Listing listing{root, nullptr, {}};
  std::vector<FolderEntry> entries;
  Errno error = open_root(root, false, listing.folder);
  if (error == 0) error = listing.folder->list(entries);
  if (error != 0) {
    found.all_read = found.all_read && error == ENOENT;
    return;
  }
  std::vector<RunFileName> files;
  for (const FolderEntry& entry : entries) {
    const std::optional<RunFileName> file = parse_run_file(entry.name);
    if (!file.has_value()) continue;  // not a name of ours
    if (file->temporary) {
      found.leftovers.push_back({root, entry.name});
      continue;
    }
    files.push_back(*file);
    listing.names.insert(entry.name);
  }
  for (const RunFileName& file : files) {
    if (file.is_manifest) {
      read_run(listing, file.run, found);
    } else if (!listing.names.contains(manifest_name(file.run))) {
      found.leftovers.push_back({root, pages_name(file.run, file.group)});
    }
  }
}

void DigestFolder::read_run(Listing& listing, const RunId& id, Inventory& found) {
  const std::string name = manifest_name(id);
  std::string why;
  FileStat stat;
  Errno error = listing.folder->stat_entry(name, stat);
  RunRecord record;
  const auto logged = found.logged.find(id);
  if (error == 0 && logged != found.logged.end() && logged->second.root == listing.root) {
    record = std::move(logged->second);
    if (encoded_bytes(record) != stat.bytes) why = "its manifest is truncated";
  } else if (error == 0) {
    found.log_fits = false;
    std::unique_ptr<DiskFile> file;
    error = listing.folder->open_file(name, OpenMode::read, file);
    std::vector<std::byte> bytes(std::min<std::uint64_t>(stat.bytes, kRunRecordBytesMax));
    std::size_t got = 0;
    if (error == 0) error = file->read(0, bytes, got);
    DecodedRecord decoded = decode_record(std::span(bytes).first(error == 0 ? got : 0));
    if (decoded.kind == DecodedRecord::Kind::run && decoded.bytes == stat.bytes) {
      record = std::move(decoded.run);
    } else {
      why = decoded.why.empty() ? "its manifest is truncated" : "manifest: " + decoded.why;
    }
  }
  if (error != 0 && error != EINVAL && error != ELOOP) {
    found.all_read = found.all_read && error == ENOENT;
    return;
  }
  const std::uint32_t user = volume_->services().files.user();
  if (why.empty() && !only_written_by(user, stat)) why = "its manifest may be another user's";
  if (why.empty()) why = check_record(record, listing.root, id);
  for (std::uint32_t group = 0; why.empty() && group < record.groups.size(); ++group) {
    if (record.groups[group].pages.empty()) continue;
    const std::string pages = pages_name(id, group);
    FileStat pages_stat;
    error = listing.folder->stat_entry(pages, pages_stat);
    if (error != 0 && error != ENOENT) {
      found.all_read = false;
      return;
    }
    if (error == ENOENT) {  // removing it was interrupted, or somebody else removed pages
      for (const std::string& other : listing.names) {
        if (parse_run_file(other)->run == id) found.leftovers.push_back({listing.root, other});
      }
      return;
    }
    if (pages_stat.bytes != pages_file_bytes(record.groups[group])) why = pages + " is truncated";
    if (!only_written_by(user, pages_stat)) why = pages + " may be another user's";
  }
  if (!why.empty()) {
    found.damaged.push_back({listing.root, id, fmt::format("run {}: {}", to_hex(id), why)});
    return;
  }
  found.runs.push_back(std::make_shared<StoredRun>(std::move(record), stat.modified_ns));
}

void DigestFolder::build_index(Inventory& found) {
  std::sort(found.runs.begin(), found.runs.end(),
            [](const auto& a, const auto& b) { return a->record.first < b->record.first; });
  auto index = std::make_unique<DiskIndex>();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::shared_ptr<StoredRun>& run : found.runs) {
    // Matches hold runs of the index that was; they must stay the same objects.
    if (std::shared_ptr<StoredRun> known = index_->run(run->record.id); known != nullptr) {
      if (known->last_use_ns.load() < run->last_use_ns.load()) {
        known->last_use_ns = run->last_use_ns.load();
      }
      run = std::move(known);
    }
    if (index->insert(run)) continue;
    // What it hangs from has gone, so nobody finds it. If that could not be read now, it may come
    // back.
    if (!found.all_read) continue;
    found.leftovers.push_back({run->record.root, manifest_name(run->record.id)});
    for (std::uint32_t g = 0; g < run->record.groups.size(); ++g) {
      if (run->record.groups[g].pages.empty()) continue;
      found.leftovers.push_back({run->record.root, pages_name(run->record.id, g)});
    }
  }
  index_.swap(index);
}

void DigestFolder::clean_up(const Inventory& found, DirectoryUsage::Change& change) {
  if (change.begin() != 0) return;
  for (const FileOfRun& file : found.leftovers) {
    std::unique_ptr<DiskFolder> root;
    if (open_root(file.root, false, root) != 0) continue;
    if (remove_counted(*root, file.name, change) == 0) {
      meter().add(&DiskCounters::leftovers_removed);
    }
    root.reset();
    static_cast<void>(folder_->remove_folder(to_hex(file.root)));  // when it is empty
  }
  for (const DamagedRun& run : found.damaged) {
    std::unique_ptr<DiskFolder> root;
    if (open_root(run.root, false, root) == 0) move_to_quarantine(*root, run.id, change);
    root.reset();
    static_cast<void>(folder_->remove_folder(to_hex(run.root)));  // when it is empty
    meter().add(&DiskCounters::quarantined);
  }
  if (!found.damaged.empty()) bound_quarantine(change);
  const std::lock_guard<std::mutex> lock(log_mutex_);
  if (log_incomplete_) rewrite_log(change);
}

void DigestFolder::follow() {
  if (holds_lock()) return;
  const std::lock_guard<std::mutex> lock(log_mutex_);
  IndexLog::News news;
  if (log_->read_news(news) != 0) return;
  apply_news(news);
  const double now = volume_->services().clock.now_s();
  if (!news.damaged || now < next_scan_s_) return;
  next_scan_s_ = now + kScanSeconds;
  Inventory found;
  read_roots(found);
  build_index(found);
  // Whoever holds the lock sets these aside.
  for (const DamagedRun& run : found.damaged) {
    if (damaged_.insert(run.id).second) meter().add(&DiskCounters::quarantined);
  }
}

void DigestFolder::apply_news(IndexLog::News& news) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (news.from_start) index_->clear();
  for (DecodedRecord& record : news.records) {
    if (record.kind == DecodedRecord::Kind::removal) {
      index_->remove(record.run.root, record.run.id);
      continue;
    }
    if (!check_record(record.run, record.run.root, record.run.id).empty()) continue;
    index_->insert(std::make_shared<StoredRun>(std::move(record.run), 0));
  }
}

std::vector<std::string> DigestFolder::read_manifests() {
  Inventory found;
  const std::lock_guard<std::mutex> lock(log_mutex_);
  read_roots(found);
  build_index(found);
  std::vector<std::string> lines;
  for (DamagedRun& run : found.damaged) lines.push_back(std::move(run.why));
  return lines;
}

void DigestFolder::read_uses() {
  std::vector<std::shared_ptr<StoredRun>> unknown;
  for_each_run([&](const std::shared_ptr<StoredRun>& run) {
    if (run->last_use_ns.load() == 0) unknown.push_back(run);
  });
  for (const std::shared_ptr<StoredRun>& run : unknown) {
    std::unique_ptr<DiskFolder> root;
    FileStat stat;
    if (open_root(run->record.root, false, root) == 0 &&
        root->stat_entry(manifest_name(run->record.id), stat) == 0) {
      run->last_use_ns = stat.modified_ns;
    }
  }
}

}  // namespace drafthouse
