#include "cache/disk/run_writer.h"

#include <cerrno>
#include <chrono>
#include <string>

#include "cache/disk/hashing.h"

namespace drafthouse {
namespace {

std::string temporary(const std::string& name) { return name + kTemporarySuffix; }

}  // namespace

Errno RunWriter::make_file(const std::string& name, std::uint64_t bytes,
                           DirectoryUsage::Change& change, std::unique_ptr<DiskFile>& out) {
  // Leftovers of an attempt that could not be cleaned up.
  Errno error = remove_counted(*root_, name, change);
  if (error == 0) error = remove_counted(*root_, temporary(name), change);
  if (error == 0) error = root_->open_file(temporary(name), OpenMode::create, out);
  if (error == 0) error = out->resize(bytes);
  if (error == 0) change.add(charged_bytes(bytes));
  return error;
}

Errno RunWriter::make_files(DirectoryUsage::Change& change) {
  const RunRecord& record = plan_.record;
  Errno error = change.begin();
  if (error == 0) error = folder_.open_root(record.root, true, root_);
  if (error == 0) {
    error = make_file(manifest_name(record.id), encoded_bytes(record), change, manifest_);
  }
  pages_.resize(record.groups.size());
  for (std::uint32_t g = 0; g < record.groups.size() && error == 0; ++g) {
    if (record.groups[g].pages.empty()) continue;
    error =
        make_file(pages_name(record.id, g), pages_file_bytes(record.groups[g]), change, pages_[g]);
  }
  return error;
}

Errno RunWriter::write_pages(std::uint32_t group, DiskFile& file) {
  RunGroup& pages = plan_.record.groups[group];
  Errno error = file.write(0, encode_pages_header(plan_.record, group));
  for (std::size_t i = 0; i < pages.pages.size() && error == 0; ++i) {
    const auto started = std::chrono::steady_clock::now();
    const std::span<const std::byte> bytes(plan_.pages[group][i].data(), pages.page_bytes);
    pages.pages[i].checksum = checksum(bytes);
    error = file.write(kPagesHeaderBytes + i * pages.page_bytes, bytes);
    pace_.pause_after(std::chrono::steady_clock::now() - started);
    if (pace_.stopped()) return ECANCELED;
  }
  return error == 0 ? file.sync() : error;
}

Errno RunWriter::write() {
  const RunRecord& record = plan_.record;
  Errno error = 0;
  for (std::uint32_t g = 0; g < record.groups.size() && error == 0; ++g) {
    if (pages_[g] != nullptr) error = write_pages(g, *pages_[g]);
  }
  if (error == 0) error = manifest_->write(0, encode(record));
  if (error == 0) error = manifest_->sync();
  return error;
}

Errno RunWriter::place_pages(DirectoryUsage::Change&) {
  Errno error = 0;
  for (std::uint32_t g = 0; g < plan_.record.groups.size() && error == 0; ++g) {
    const std::string name = pages_name(plan_.record.id, g);
    if (pages_[g] != nullptr) error = root_->rename(temporary(name), *root_, name);
  }
  return error;
}

Errno RunWriter::place_manifest(DirectoryUsage::Change&) {
  const std::string name = manifest_name(plan_.record.id);
  return root_->rename(temporary(name), *root_, name);
}

Errno RunWriter::sync_names() { return root_->sync(); }

bool RunWriter::publish(DirectoryUsage::Change& change) {
  const std::int64_t now = folder_.volume().services().files.now_ns();
  auto run = std::make_shared<StoredRun>(plan_.record, now);
  run->checked = true;
  return folder_.publish(std::move(run), change);
}

void RunWriter::abandon(DirectoryUsage::Change& change) {
  if (root_ == nullptr || change.begin() != 0) return;
  const RunRecord& record = plan_.record;
  std::vector<std::string> names{manifest_name(record.id)};
  for (std::uint32_t g = 0; g < record.groups.size(); ++g)
    names.push_back(pages_name(record.id, g));
  for (const std::string& name : names) {
    static_cast<void>(remove_counted(*root_, name, change));
    static_cast<void>(remove_counted(*root_, temporary(name), change));
  }
}

}  // namespace drafthouse
