#include "cache/disk_tier.h"

#include <algorithm>
#include <utility>

namespace drafthouse {
namespace {

StateLayout part_of(const StateLayout& layout, bool draft) {
  StateLayout part;
  for (const GroupLayout& group : layout.groups) {
    if (group.draft == draft) part.groups.push_back(group);
  }
  return part;
}

StateNote note_of(const CacheIdentity& identity, const StateSpec& spec, bool draft) {
  StateNote note{.models = CacheIdentity{identity.target, draft ? identity.draft : ""}.text()};
  for (const auto& field : spec.fields) {
    if (draft || !field.first.starts_with("draft ")) note.fields.push_back(field);
  }
  return note;
}

}  // namespace

DiskTier::DiskTier(std::shared_ptr<DiskDirectory> directory, const StateLayout& layout)
    : directory_(std::move(directory)), target_groups_(layout.target_groups()) {
  for (std::size_t g = 0; g < target_groups_; ++g) {
    if (layout.groups[g].kind == GroupKind::recurrent) recurrent_.push_back(g);
  }
}

Result<std::unique_ptr<DiskTier>> DiskTier::open(std::shared_ptr<DiskDirectory> directory,
                                                 const CacheIdentity& identity,
                                                 const StateSpec& spec) {
  std::unique_ptr<DiskTier> tier(new DiskTier(directory, spec.layout));
  auto section = DiskSection::open(directory, spec.target, part_of(spec.layout, false),
                                   note_of(identity, spec, false));
  if (!section.ok()) return section.status();
  tier->target_ = std::move(section).value();
  const StateLayout drafts = part_of(spec.layout, true);
  if (drafts.groups.empty()) return tier;
  section =
      DiskSection::open(std::move(directory), spec.draft, drafts, note_of(identity, spec, true));
  if (!section.ok()) return section.status();
  tier->draft_ = std::move(section).value();
  return tier;
}

DiskTier::Found DiskTier::find(std::string_view salt, std::span<const std::uint32_t> tokens) const {
  Found found;
  found.target = target_->find(salt, tokens);
  found.pages = found.target.pages();
  found.why_not_more = found.target.why_not_more();
  if (draft_ != nullptr && found.pages > 0) {
    found.draft = draft_->find(salt, tokens.first(std::size_t{found.pages} * kPageTokens));
    found.draft_pages = found.draft.pages();
  }
  return found;
}

bool DiskTier::has(const Found& found, std::uint32_t group, std::uint32_t page) const {
  if (group < target_groups_) return page < found.pages && found.target.has(group, page);
  return page < found.draft_pages && found.draft.has(group - target_groups_, page);
}

Status DiskTier::read(const Found& found, std::uint32_t group, std::uint32_t page,
                      std::span<std::byte> into) const {
  if (group < target_groups_) return target_->read(found.target, group, page, into);
  return draft_->read(found.draft, group - target_groups_, page, into);
}

void DiskTier::offer(std::string_view salt, std::span<const std::uint32_t> tokens,
                     const PrefixPages& pages) {
  const auto cut = [&](std::size_t first, std::size_t end, std::size_t count) {
    DiskSnapshot snapshot;
    snapshot.salt = salt;
    snapshot.tokens.assign(tokens.begin(), tokens.end());
    if (count * kPageTokens < tokens.size() - tokens.size() % kPageTokens) {
      snapshot.tokens.resize(count * kPageTokens);
    }
    for (std::size_t group = first; group < end; ++group) {
      snapshot.pages.emplace_back(pages[group].begin(),
                                  pages[group].begin() + static_cast<std::ptrdiff_t>(count));
    }
    return snapshot;
  };
  const std::size_t count = std::min(pages.front().size(), tokens.size() / kPageTokens);
  if (count == 0) return;
  for (std::size_t end = recurrent_.empty() ? count : 1; end <= count; ++end) {
    const bool usable = std::all_of(recurrent_.begin(), recurrent_.end(), [&](std::size_t group) {
      return static_cast<bool>(pages[group][end - 1]);
    });
    if (usable) (void)target_->offer(cut(0, target_groups_, end));
  }
  if (draft_ == nullptr) return;
  // The draft's context as far as it goes: turns without a draft leave the last pages out.
  std::size_t drafted = count;
  for (std::size_t group = target_groups_; group < pages.size(); ++group) {
    std::size_t whole = count;
    while (whole > 0 && !pages[group][whole - 1]) --whole;
    drafted = std::min(drafted, whole);
  }
  if (drafted > 0) (void)draft_->offer(cut(target_groups_, pages.size(), drafted));
}

Status DiskTier::clear(std::string_view salt) {
  Status status = target_->clear(salt);
  if (draft_ == nullptr) return status;
  Status second = draft_->clear(salt);
  return status.ok() ? second : status;
}

Status DiskTier::clear_all() {
  Status status = target_->clear_all();
  if (draft_ == nullptr) return status;
  Status second = draft_->clear_all();
  return status.ok() ? second : status;
}

}  // namespace drafthouse
