#include "cache/disk/digest_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace drafthouse {
namespace {

constexpr std::size_t kQuarantineFilesMax = 32;
// A log is written anew when this much of it, and more than half, tells of runs that have gone.
constexpr std::size_t kLogGarbageMin = 256;

}  // namespace

Errno remove_counted(DiskFolder& folder, const std::string& name, DirectoryUsage::Change& change) {
  FileStat stat;
  Errno error = folder.stat_entry(name, stat);
  if (error == 0) error = folder.remove_file(name);
  if (error == 0) change.subtract(charged_bytes(stat.bytes));
  return error == ENOENT ? 0 : error;
}

Result<std::shared_ptr<DigestFolder>> DigestFolder::open(std::shared_ptr<DiskVolume> volume,
                                                         const std::string& digest, bool create,
                                                         const StateLayout* layout,
                                                         std::shared_ptr<DiskMeter> meter) {
  std::shared_ptr<DigestFolder> made(new DigestFolder(std::move(volume), digest));
  DiskVolume& in = *made->volume_;
  const std::string path = fmt::format("{}/{}/{}", in.directory(), kVersionName, digest);
  Errno error = in.version().open_folder(digest, false, made->folder_);
  if (error == ENOENT && create) {
    error = in.version().open_folder(digest, true, made->folder_);
    if (error == 0) error = in.version().sync();
  }
  if (error != 0) {
    return Status(error == ENOENT ? Code::not_found : Code::internal,
                  fmt::format("disk cache {}: {}", path, describe(error)));
  }
  Status owner = check_folder_owner(in.services().files, *made->folder_, path);
  if (!owner.ok()) return owner;
  if (layout != nullptr) made->layout_ = *layout;
  made->own_meter_ = std::move(meter);
  made->log_ = std::make_unique<IndexLog>(*made->folder_);
  made->index_ = std::make_unique<DiskIndex>();
  return made;
}

LockFile::Outcome DigestFolder::try_take_over(Errno& error, DirectoryUsage::Change* change) {
  if (holds_lock()) return LockFile::Outcome::held;
  const LockFile::Outcome outcome = lock_.try_take(*folder_, kLockName, error);
  if (outcome == LockFile::Outcome::held) {
    put_in_order(change);
    holds_lock_ = true;
  }
  return outcome;
}

void DigestFolder::release_lock() {
  holds_lock_ = false;
  lock_.release();
}

bool DigestFolder::still_ours() {
  FileStat stat;
  if (folder_->stat(stat) != 0 || stat.links == 0) return false;
  FileStat named;
  if (volume_->version().stat_entry(digest_, named) != 0 || named.inode != stat.inode) return false;
  return !holds_lock() || lock_.still_named(*folder_, kLockName);
}

IndexMatch DigestFolder::find(const RootName& root, std::span<const std::uint32_t> tokens,
                              const StateLayout& layout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  IndexMatch match = index_->find(root, tokens, layout);
  // Held before the lock goes, so that nothing found is evicted.
  for (const std::vector<PagePlace>& group : match.places) {
    for (const PagePlace& place : group) {
      if (place.run != nullptr) ++place.run->holds;
    }
  }
  return match;
}

std::vector<MissingPage> DigestFolder::missing(const RootName& root,
                                               std::span<const std::uint32_t> tokens,
                                               const StateLayout& layout) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index_->missing(root, tokens, layout);
}

std::uint32_t DigestFolder::known(const RootName& root,
                                  std::span<const std::uint32_t> tokens) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index_->known(root, tokens);
}

void DigestFolder::mark_used(const std::shared_ptr<StoredRun>& run) {
  const std::int64_t now = volume_->services().files.now_ns();
  std::int64_t before = run->last_use_ns.load();
  while (before < now && !run->last_use_ns.compare_exchange_weak(before, now)) {
  }
  if (run->use_pending.exchange(true)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  uses_.push_back(run);
}

void DigestFolder::mark_prefix_used(const RootName& root, std::span<const std::uint32_t> tokens,
                                    const StateLayout& layout) {
  std::shared_ptr<StoredRun> deepest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    deepest = index_->find(root, tokens, layout).deepest;
  }
  if (deepest != nullptr) mark_used(deepest);
}

bool DigestFolder::knows(const StoredRun& run) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index_->run(run.record.id).get() == &run;
}

void DigestFolder::write_uses() {
  std::vector<std::shared_ptr<StoredRun>> uses;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    uses.swap(uses_);
  }
  for (const std::shared_ptr<StoredRun>& run : uses) {
    run->use_pending = false;
    std::unique_ptr<DiskFolder> root;
    // Whoever only reads the folder marks uses too; where that is refused, nothing is lost but
    // order.
    if (open_root(run->record.root, false, root) != 0) continue;
    static_cast<void>(root->set_modified(manifest_name(run->record.id), run->last_use_ns.load()));
  }
}

Errno DigestFolder::open_root(const RootName& root, bool create, std::unique_ptr<DiskFolder>& out) {
  Errno error = folder_->open_folder(to_hex(root), false, out);
  if (error != ENOENT || !create) return error;
  error = folder_->open_folder(to_hex(root), true, out);
  return error == 0 ? folder_->sync() : error;
}

Status DigestFolder::open_pages(StoredRun& run, std::uint32_t group,
                                std::shared_ptr<DiskFile>& out) {
  const RunRecord& record = run.record;
  const std::string name = pages_name(record.id, group);
  std::unique_ptr<DiskFolder> root;
  std::unique_ptr<DiskFile> file;
  Errno error = open_root(record.root, false, root);
  if (error == 0) error = root->open_file(name, OpenMode::read, file);
  FileStat stat;
  if (error == 0) error = file->stat(stat);
  std::vector<std::byte> header(kPagesHeaderBytes);
  std::size_t got = 0;
  if (error == 0) error = file->read(0, header, got);
  if (error == 0 && stat.bytes == pages_file_bytes(record.groups[group]) &&
      header == encode_pages_header(record, group)) {
    if (run.checked.load()) {
      out = std::move(file);
      return {};
    }
    std::unique_ptr<DiskFile> manifest;
    const std::vector<std::byte> expected = encode(record);
    std::vector<std::byte> found(expected.size() + 1);
    error = root->open_file(manifest_name(record.id), OpenMode::read, manifest);
    if (error == 0) error = manifest->read(0, found, got);
    if (error == 0) {
      found.resize(got);
      if (found == expected) {
        run.checked = true;
        out = std::move(file);
        return {};
      }
      return {Code::corrupt, fmt::format("disk cache: manifest {} is damaged", to_hex(record.id))};
    }
  }
  if (error == ENOENT) return {Code::not_found, fmt::format("disk cache: {} has gone", name)};
  if (error != 0 && error != EINVAL && error != ELOOP) {
    return {Code::internal, fmt::format("disk cache: {}: {}", name, describe(error))};
  }
  return {Code::corrupt, fmt::format("disk cache: {} is damaged", name)};
}

void DigestFolder::forget(const StoredRun& run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index_->run(run.record.id).get() == &run) index_->remove(run.record.root, run.record.id);
}

std::shared_ptr<StoredRun> DigestFolder::hold_parent(const RunRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<StoredRun> parent = index_->run_at(record.root, record.parent);
  if (parent != nullptr) ++parent->holds;
  return parent;
}

bool DigestFolder::publish(std::shared_ptr<StoredRun> run, DirectoryUsage::Change& change) {
  const std::vector<std::byte> record = encode(run->record);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!index_->insert(std::move(run))) return false;
  }
  append_to_log(record, change);
  return true;
}

void DigestFolder::append_to_log(std::span<const std::byte> record,
                                 DirectoryUsage::Change& change) {
  const std::lock_guard<std::mutex> lock(log_mutex_);
  std::uint64_t grown = 0;
  const Errno error = change.begin() == 0 ? log_->append(record, grown) : EIO;
  change.add(grown);
  ++log_records_;
  std::size_t runs = 0;
  {
    const std::lock_guard<std::mutex> index_lock(mutex_);
    runs = index_->runs();
  }
  const bool mostly_garbage = log_records_ > 2 * runs + kLogGarbageMin;
  // A log that cannot be written loses nothing: manifests decide. It is tried again with the next
  // run.
  if (error != 0 || mostly_garbage || log_incomplete_) rewrite_log(change);
}

// Requires log_mutex_.
void DigestFolder::rewrite_log(DirectoryUsage::Change& change) {
  std::vector<std::shared_ptr<StoredRun>> runs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    index_->for_each([&](const std::shared_ptr<StoredRun>& run) { runs.push_back(run); });
  }
  // Readers insert in this order.
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a->record.first < b->record.first; });
  std::vector<std::vector<std::byte>> records;
  records.reserve(runs.size());
  for (const std::shared_ptr<StoredRun>& run : runs) records.push_back(encode(run->record));
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  if (change.begin() != 0) return;
  static_cast<void>(remove_counted(*folder_, std::string(kIndexName) + kTemporarySuffix, change));
  const Errno error = log_->rewrite(records, before, after);
  change.subtract(before);
  change.add(after);
  log_incomplete_ = error != 0;
  if (error != 0) return;
  log_records_ = records.size();
}

std::shared_ptr<StoredRun> DigestFolder::oldest_leaf() {
  for (;;) {
    std::shared_ptr<StoredRun> run;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      run = index_->oldest_leaf();
    }
    if (run == nullptr) return nullptr;
    // Others may have used it since.
    std::unique_ptr<DiskFolder> root;
    FileStat stat;
    if (run->use_pending.load() || open_root(run->record.root, false, root) != 0 ||
        root->stat_entry(manifest_name(run->record.id), stat) != 0 ||
        stat.modified_ns <= run->last_use_ns.load()) {
      return run;
    }
    run->last_use_ns = stat.modified_ns;
  }
}

bool DigestFolder::locked_by_others() {
  if (holds_lock()) return false;
  std::unique_ptr<DiskFile> file;
  if (folder_->open_file(kLockName, OpenMode::read, file) != 0) return false;
  return file->try_lock() == EWOULDBLOCK;
}

void DigestFolder::forget_leaf(const std::shared_ptr<StoredRun>& run) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::shared_ptr<StoredRun> parent = index_->parent_of(*run);
  if (parent != nullptr && parent->last_use_ns.load() < run->last_use_ns.load()) {
    parent->last_use_ns = run->last_use_ns.load();
  }
  index_->remove(run->record.root, run->record.id);
}

bool DigestFolder::evict(const std::shared_ptr<StoredRun>& run, DirectoryUsage::Change& change) {
  std::shared_ptr<StoredRun> parent;
  std::vector<std::shared_ptr<StoredRun>> going;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (run->holds.load() > 0 || !index_->is_leaf(*run)) return false;
    parent = index_->parent_of(*run);
    going = index_->remove(run->record.root, run->record.id);
  }
  std::unique_ptr<DiskFolder> root;
  if (parent != nullptr && parent->last_use_ns.load() < run->last_use_ns.load() &&
      open_root(parent->record.root, false, root) == 0) {
    // Using a prefix used all of it; only its last run was marked.
    parent->last_use_ns = run->last_use_ns.load();
    static_cast<void>(
        root->set_modified(manifest_name(parent->record.id), parent->last_use_ns.load()));
  }
  remove_runs(going, change);
  meter().add(&DiskCounters::evictions, going.size());
  meter().add(&DiskCounters::evicted_bytes, run->charged);
  return true;
}

void DigestFolder::remove_runs(const std::vector<std::shared_ptr<StoredRun>>& runs,
                               DirectoryUsage::Change& change) {
  if (runs.empty() || change.begin() != 0) return;
  for (const std::shared_ptr<StoredRun>& run : runs) {
    std::unique_ptr<DiskFolder> root;
    if (open_root(run->record.root, false, root) != 0) continue;
    static_cast<void>(remove_counted(*root, manifest_name(run->record.id), change));
    for (std::uint32_t group = 0; group < run->record.groups.size(); ++group) {
      if (run->record.groups[group].pages.empty()) continue;
      static_cast<void>(remove_counted(*root, pages_name(run->record.id, group), change));
    }
    append_to_log(encode_removal(run->record.root, run->record.id), change);
    root.reset();
    static_cast<void>(folder_->remove_folder(to_hex(run->record.root)));  // when it is empty
  }
}

void DigestFolder::set_aside(const RootName& root_name, const RunId& id,
                             DirectoryUsage::Change& change) {
  std::vector<std::shared_ptr<StoredRun>> going;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    going = index_->remove(root_name, id);
  }
  std::erase_if(going, [&](const auto& run) { return run->record.id == id; });
  remove_runs(going, change);
  std::unique_ptr<DiskFolder> root;
  if (change.begin() == 0 && open_root(root_name, false, root) == 0) {
    move_to_quarantine(*root, id, change);
    bound_quarantine(change);
    root.reset();
    static_cast<void>(folder_->remove_folder(to_hex(root_name)));  // when it is empty
  }
  append_to_log(encode_removal(root_name, id), change);
  meter().add(&DiskCounters::quarantined);
}

void DigestFolder::move_to_quarantine(DiskFolder& root, const RunId& run,
                                      DirectoryUsage::Change& change) {
  std::unique_ptr<DiskFolder> quarantine;
  const bool kept = folder_->open_folder(kQuarantineName, true, quarantine) == 0;
  std::vector<std::string> names{manifest_name(run)};
  std::vector<FolderEntry> entries;
  static_cast<void>(root.list(entries));
  for (const FolderEntry& entry : entries) {
    const std::optional<RunFileName> file = parse_run_file(entry.name);
    if (file.has_value() && file->run == run && !file->is_manifest) names.push_back(entry.name);
  }
  for (const std::string& name : names) {
    if (kept) static_cast<void>(remove_counted(*quarantine, name, change));
    if (!kept || root.rename(name, *quarantine, name) != 0) {
      static_cast<void>(remove_counted(root, name, change));
    }
  }
}

void DigestFolder::bound_quarantine(DirectoryUsage::Change& change) {
  std::unique_ptr<DiskFolder> quarantine;
  if (folder_->open_folder(kQuarantineName, false, quarantine) != 0) return;
  struct Kept {
    std::string name;
    FileStat stat;
  };
  std::vector<FolderEntry> entries;
  static_cast<void>(quarantine->list(entries));
  std::vector<Kept> kept;
  std::uint64_t bytes = 0;
  for (const FolderEntry& entry : entries) {
    Kept file{entry.name, {}};
    if (!parse_run_file(entry.name) || quarantine->stat_entry(entry.name, file.stat) != 0) continue;
    bytes += file.stat.bytes;
    kept.push_back(std::move(file));
  }
  const std::uint64_t bytes_max = volume_->services().quarantine_bytes_max;
  std::sort(kept.begin(), kept.end(),
            [](const Kept& a, const Kept& b) { return a.stat.modified_ns < b.stat.modified_ns; });
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept.size() - i <= kQuarantineFilesMax && bytes <= bytes_max) break;
    if (remove_counted(*quarantine, kept[i].name, change) == 0) bytes -= kept[i].stat.bytes;
  }
}

void DigestFolder::clear(const std::optional<RootName>& root, DirectoryUsage::Change& change) {
  std::vector<std::shared_ptr<StoredRun>> going;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::shared_ptr<StoredRun>> starts;
    index_->for_each([&](const std::shared_ptr<StoredRun>& run) {
      if (run->record.first == 0 && (!root || run->record.root == *root)) starts.push_back(run);
    });
    for (const std::shared_ptr<StoredRun>& run : starts) {
      const auto removed = index_->remove(run->record.root, run->record.id);
      going.insert(going.end(), removed.begin(), removed.end());
    }
  }
  remove_runs(going, change);
}

void DigestFolder::clear_whole(DirectoryUsage::Change& change) {
  clear(std::nullopt, change);
  if (change.begin() != 0) return;
  std::unique_ptr<DiskFolder> quarantine;
  if (folder_->open_folder(kQuarantineName, false, quarantine) == 0) {
    std::vector<FolderEntry> entries;
    static_cast<void>(quarantine->list(entries));
    for (const FolderEntry& entry : entries) {
      if (parse_run_file(entry.name)) {
        static_cast<void>(remove_counted(*quarantine, entry.name, change));
      }
    }
    quarantine.reset();
    static_cast<void>(folder_->remove_folder(kQuarantineName));
  }
  std::vector<FolderEntry> entries;
  static_cast<void>(folder_->list(entries));
  for (const FolderEntry& entry : entries) {  // empty ones that an interruption left
    if (parse_root(entry.name)) static_cast<void>(folder_->remove_folder(entry.name));
  }
  remove_state_note(*folder_, change);
  static_cast<void>(remove_counted(*folder_, kIndexName, change));
  static_cast<void>(remove_counted(*folder_, kLockName, change));
  // Not when somebody made a lock of his own meanwhile, or something is here that is not ours.
  static_cast<void>(volume_->version().remove_folder(digest_));
}

void DigestFolder::for_each_run(
    const std::function<void(const std::shared_ptr<StoredRun>&)>& call) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  index_->for_each(call);
}

std::size_t DigestFolder::leaves() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::size_t count = 0;
  index_->for_each(
      [&](const std::shared_ptr<StoredRun>& run) { count += index_->is_leaf(*run) ? 1 : 0; });
  return count;
}

std::size_t DigestFolder::known_pages() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index_->pages();
}

std::size_t DigestFolder::memory_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return index_->memory_bytes();
}

}  // namespace drafthouse
