#include "cache/disk/disk_section.h"

#include <utility>

#include "cache/disk/disk_core.h"
#include "cache/disk/section_core.h"

namespace drafthouse {

Result<std::shared_ptr<DiskSection>> DiskSection::open(std::shared_ptr<DiskDirectory> directory,
                                                       const StateDigest& digest,
                                                       const StateLayout& layout, StateNote note) {
  Result<std::shared_ptr<SectionCore>> core =
      directory->core().section(digest, layout, std::move(note));
  if (!core.ok()) return core.status();
  return std::shared_ptr<DiskSection>(
      new DiskSection(std::move(directory), std::move(core).value()));
}

DiskSection::DiskSection(std::shared_ptr<DiskDirectory> directory,
                         std::shared_ptr<SectionCore> core)
    : directory_(std::move(directory)), core_(std::move(core)) {}

DiskSection::~DiskSection() = default;

bool DiskSection::writable() const { return core_->writable(); }

std::string DiskSection::why_read_only() const { return core_->why_read_only(); }

DiskMatch DiskSection::find(std::string_view salt, std::span<const std::uint32_t> tokens) const {
  return core_->find(salt, tokens);
}

Status DiskSection::read(const DiskMatch& match, std::uint32_t group, std::uint32_t page,
                         std::span<std::byte> into) const {
  return core_->read(match, group, page, into);
}

bool DiskSection::offer(DiskSnapshot snapshot) { return core_->offer(std::move(snapshot)); }

Status DiskSection::clear(std::string_view salt) { return core_->clear(std::string(salt)); }

Status DiskSection::clear_all() { return core_->clear(std::nullopt); }

DiskCounters DiskSection::counters() const { return core_->meter().read(); }

const StateLayout& DiskSection::layout() const { return core_->layout(); }

std::size_t DiskSection::memory_bytes() const {
  const std::shared_ptr<DigestFolder> folder = core_->folder();
  return folder == nullptr ? 0 : folder->memory_bytes();
}

}  // namespace drafthouse
