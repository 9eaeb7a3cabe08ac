#include "cache/disk/section_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/disk/disk_core.h"
#include "cache/disk/hashing.h"

namespace drafthouse {

struct DiskMatch::State {
  struct OpenFile {
    const StoredRun* run = nullptr;
    std::shared_ptr<DiskFile> file;
  };

  ~State() {
    for (const std::vector<PagePlace>& group : found.places) {
      for (const PagePlace& place : group) {
        if (place.run != nullptr) --place.run->holds;
      }
    }
  }

  // Whoever opens the digest anew meanwhile gets the same section, and with it the lock.
  std::shared_ptr<SectionCore> section;
  std::shared_ptr<DigestFolder> folder;
  IndexMatch found;
  std::string why;
  std::atomic<bool> used{false};
  std::mutex mutex;
  std::vector<OpenFile> open;  // per group the file read last: pages come in order
};

std::uint32_t DiskMatch::pages() const { return state_ == nullptr ? 0 : state_->found.pages; }

bool DiskMatch::has(std::uint32_t group, std::uint32_t page) const {
  return state_ != nullptr && group < state_->found.places.size() &&
         page < state_->found.places[group].size() &&
         state_->found.places[group][page].run != nullptr;
}

const std::string& DiskMatch::why_not_more() const {
  static const std::string kNothing = "the disk tier was not asked";
  return state_ == nullptr ? kNothing : state_->why;
}

SectionCore::SectionCore(std::shared_ptr<DiskCore> core, const StateDigest& digest,
                         StateLayout layout, StateNote note)
    : core_(std::move(core)),
      digest_(digest),
      layout_(std::move(layout)),
      note_(std::move(note)),
      name_(digest.hex()),
      meter_(std::make_shared<DiskMeter>(&core_->meter())) {}

std::shared_ptr<DigestFolder> SectionCore::folder() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return folder_;
}

bool SectionCore::writable() const {
  const std::shared_ptr<DigestFolder> now = folder();
  return now != nullptr && now->holds_lock();
}

std::string SectionCore::why_read_only() const {
  if (writable()) return {};
  const std::shared_ptr<DiskVolume> volume = core_->volume();
  if (volume != nullptr && !volume->read_only_why().empty()) return volume->read_only_why();
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_read_only_;
}

void SectionCore::maintain(const std::shared_ptr<DiskVolume>& volume) {
  std::shared_ptr<DigestFolder> now = folder();
  if (now != nullptr && (&now->volume() != volume.get() || !now->still_ours())) {
    const std::lock_guard<std::mutex> lock(mutex_);
    folder_ = now = nullptr;
  }
  if (now == nullptr && volume != nullptr) {
    const bool create = volume->read_only_why().empty();
    Result<std::shared_ptr<DigestFolder>> opened =
        DigestFolder::open(volume, name_, create, &layout_, meter_);
    if (!opened.ok()) {
      if (create || opened.status().code() != Code::not_found) {
        core_->services().log.say_once("folder " + name_, opened.status().message());
      }
      return;
    }
    now = std::move(opened).value();
  }
  if (now == nullptr) return;
  if (!now->holds_lock() && volume->read_only_why().empty()) {
    Errno error = 0;
    const LockFile::Outcome outcome = now->try_take_over(error);
    say_who_holds(outcome, error);
  }
  if (now != folder()) {
    now->follow();
    std::string changed;
    if (!note_.models.empty() && now->known_pages() == 0) changed = changed_since(*volume);
    noted_ = note_.models.empty();
    const std::lock_guard<std::mutex> lock(mutex_);
    folder_ = now;
    changed_ = std::move(changed);
  }
  now->write_uses();
}

std::string SectionCore::changed_since(DiskVolume& volume) const {
  // Of several the one most like this state, so that the change is named that was made last, most
  // likely.
  std::string changed;
  std::size_t least = note_.fields.size() + 1;
  for (const std::string& digest : volume.digests()) {
    std::unique_ptr<DiskFolder> folder;
    if (digest == name_ || volume.version().open_folder(digest, false, folder) != 0) continue;
    const std::optional<StateNote> other = read_state_note(*folder);
    if (!other.has_value() || other->models != note_.models) continue;
    // Only own names are repeated; the file may be anybody's.
    std::string first;
    std::size_t different = 0;
    for (const auto& field : note_.fields) {
      if (std::find(other->fields.begin(), other->fields.end(), field) != other->fields.end())
        continue;
      if (++different == 1) first = field.first;
    }
    if (different == 0 || different >= least) continue;
    least = different;
    changed = std::move(first);
  }
  return changed;
}

void SectionCore::say_who_holds(LockFile::Outcome outcome, Errno error) {
  std::string why;
  switch (outcome) {
    case LockFile::Outcome::held: break;
    case LockFile::Outcome::busy: why = "another process writes it"; break;
    case LockFile::Outcome::unsupported:
      why = fmt::format("its file system has no locks ({})", describe(error));
      break;
    case LockFile::Outcome::failed:
      why = fmt::format("its lock cannot be taken ({})", describe(error));
      break;
  }
  DiskLog& log = core_->services().log;
  const std::string cause = "lock " + name_;
  const std::string what =
      fmt::format("disk cache {}: {}", core_->options().directory, name_.substr(0, 16));
  if (why.empty()) {
    if (log.recovered(cause, what + " is written by this process now")) {
      meter_->add(&DiskCounters::takeovers);
    }
  } else {
    log.say_once(cause, what + " is only read: " + why);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  why_read_only_ = std::move(why);
}

DiskMatch SectionCore::find(std::string_view salt, std::span<const std::uint32_t> tokens) {
  DiskMatch match;
  match.state_ = std::make_shared<DiskMatch::State>();
  DiskMatch::State& state = *match.state_;
  state.section = shared_from_this();
  state.folder = folder();
  if (state.folder == nullptr) {
    const std::string why = core_->why_off();
    state.why = "the disk tier is off" + (why.empty() ? std::string() : ": " + why);
    return match;
  }
  const RootName root = state.folder->volume().root_of(salt);
  state.found = state.folder->find(root, tokens, layout_);
  const std::size_t whole = tokens.size() / kPageTokens;
  if (state.found.pages < whole && !state.folder->holds_lock()) {
    state.folder->follow();
    auto again = std::make_shared<DiskMatch::State>();
    again->section = state.section;
    again->folder = state.folder;
    again->found = again->folder->find(root, tokens, layout_);
    match.state_ = std::move(again);
  }
  DiskMatch::State& last = *match.state_;
  last.open.resize(layout_.groups.size());
  if (last.found.pages < whole) last.why = why_not_more(last.found, tokens);
  return match;
}

std::string SectionCore::why_not_more(const IndexMatch& found,
                                      std::span<const std::uint32_t> tokens) const {
  if (!found.root_known) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return changed_.empty() ? "nothing is stored" : "state digest changed: " + changed_;
  }
  if (found.pages < found.known) {
    return fmt::format("pages before token {} are not stored", found.known * kPageTokens);
  }
  const std::size_t differs = std::size_t{found.known} * kPageTokens + found.equal_tokens;
  if (differs >= tokens.size()) return fmt::format("not stored beyond token {}", differs);
  return fmt::format("differs at token {}", differs);
}

Status SectionCore::read(const DiskMatch& match, std::uint32_t group, std::uint32_t page,
                         std::span<std::byte> into) {
  if (match.state_ == nullptr || page >= match.pages() || group >= layout_.groups.size()) {
    return {Code::invalid_argument,
            fmt::format("disk cache: page {} of group {} is not in the match", page, group)};
  }
  if (layout_.groups[group].page_bytes == 0 && into.empty()) return {};
  DiskMatch::State& state = *match.state_;
  const PagePlace& place = state.found.places[group][page];
  if (place.run == nullptr) {
    return {Code::not_found,
            fmt::format("disk cache: page {} of group {} is out of reach", page, group)};
  }
  const RunGroup& pages = place.run->record.groups[group];
  if (into.size() != pages.page_bytes) {
    return {Code::invalid_argument,
            fmt::format("disk cache: a page of group {} has {} bytes, not {}", group,
                        pages.page_bytes, into.size())};
  }
  std::shared_ptr<DiskFile> file;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.open[group].run == place.run.get()) file = state.open[group].file;
  }
  if (file == nullptr) {
    Status opened = state.folder->open_pages(*place.run, group, file);
    if (opened.code() == Code::corrupt) return damaged(state.folder, place.run, opened.message());
    if (opened.code() == Code::not_found) {
      meter_->add(&DiskCounters::vanished);
      state.folder->forget(*place.run);
    }
    if (opened.code() == Code::internal) meter_->add(&DiskCounters::read_errors);
    if (!opened.ok()) return opened;
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.open[group] = {place.run.get(), file};
  }
  std::size_t got = 0;
  const Errno error = file->read(kPagesHeaderBytes + place.slot * pages.page_bytes, into, got);
  if (error != 0) {
    meter_->add(&DiskCounters::read_errors);
    return {Code::internal, fmt::format("disk cache: reading {} failed: {}",
                                        pages_name(place.run->record.id, group), describe(error))};
  }
  if (got != into.size() || checksum(into) != pages.pages[place.slot].checksum) {
    return damaged(state.folder, place.run,
                   fmt::format("disk cache: page {} in {} is damaged", page,
                               pages_name(place.run->record.id, group)));
  }
  if (!state.used.exchange(true) && state.found.deepest != nullptr) {
    state.folder->mark_used(state.found.deepest);
  }
  meter_->add(&DiskCounters::reads);
  meter_->add(&DiskCounters::read_bytes, into.size());
  return {};
}

Status SectionCore::damaged(const std::shared_ptr<DigestFolder>& folder,
                            const std::shared_ptr<StoredRun>& run, const std::string& why) {
  core_->services().log.say(why + "; it is set aside");
  if (!folder->holds_lock()) {
    // Its holder sets it aside when he meets it.
    folder->forget(*run);
    meter_->add(&DiskCounters::quarantined);
    return {Code::corrupt, why};
  }
  const auto task = [core = core_, folder, run] {
    if (!folder->holds_lock() || !folder->knows(*run)) return;
    core->change_directory(folder->volume(), [&](DirectoryUsage::Change& change) {
      folder->set_aside(run->record.root, run->record.id, change);
    });
  };
  core_->run(task, true);
  return {Code::corrupt, why};
}

std::vector<MissingPage> SectionCore::missing_of(const DigestFolder& folder, const RootName& root,
                                                 const DiskSnapshot& snapshot) const {
  std::vector<MissingPage> missing = folder.missing(root, snapshot.tokens, layout_);
  std::erase_if(missing, [&](const MissingPage& page) {
    if (!layout_.groups[page.group].draft || page.group >= snapshot.pages.size()) return false;
    const std::vector<PageRef>& group = snapshot.pages[page.group];
    return page.page < group.size() && !group[page.page];
  });
  return missing;
}

bool SectionCore::lacks_pages(const DiskSnapshot& snapshot,
                              const std::vector<MissingPage>& missing) const {
  if (snapshot.pages.size() != layout_.groups.size()) return true;
  return std::any_of(missing.begin(), missing.end(), [&](const MissingPage& page) {
    const std::vector<PageRef>& group = snapshot.pages[page.group];
    return page.page >= group.size() || !group[page.page];
  });
}

// Leading pages that the queue has room for, when a shorter prefix can be used too: the start of a
// prompt is what is asked for again most.
std::size_t SectionCore::fit_into_queue(DiskSnapshot& snapshot, std::vector<MissingPage>& missing,
                                        bool& shortened) {
  const std::size_t room = core_->room_in_queue();
  const bool any_length =
      std::all_of(layout_.groups.begin(), layout_.groups.end(),
                  [](const GroupLayout& group) { return group.reach == 0 || group.draft; });
  std::size_t bytes = 0;
  shortened = false;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    bytes += layout_.groups[missing[i].group].page_bytes;
    if (bytes <= room) continue;
    shortened = true;
    const std::uint32_t end = any_length ? missing[i].page : 0;
    std::erase_if(missing, [end](const MissingPage& page) { return page.page >= end; });
    snapshot.tokens.resize(std::size_t{end} * kPageTokens);
    for (std::vector<PageRef>& group : snapshot.pages) {
      group.resize(std::min<std::size_t>(group.size(), end));
    }
    bytes = 0;
    for (const MissingPage& page : missing) bytes += layout_.groups[page.group].page_bytes;
    break;
  }
  return bytes;
}

bool SectionCore::offer(DiskSnapshot snapshot) {
  const auto dropped = [this](std::uint64_t DiskCounters::* cause) {
    meter_->add(cause);
    return false;
  };
  const std::shared_ptr<DigestFolder> now = folder();
  if (now == nullptr) return dropped(&DiskCounters::drops_suspended);
  if (!now->holds_lock()) return dropped(&DiskCounters::drops_read_only);
  const RootName root = now->volume().root_of(snapshot.salt);
  std::vector<MissingPage> missing = missing_of(*now, root, snapshot);
  if (lacks_pages(snapshot, missing)) return dropped(&DiskCounters::drops_incomplete);
  if (!missing.empty() && core_->suspended()) return dropped(&DiskCounters::drops_suspended);
  bool shortened = false;
  const std::size_t bytes = fit_into_queue(snapshot, missing, shortened);
  if (shortened) {
    meter_->add(&DiskCounters::drops_queue);
    if (missing.empty()) return false;
    if (snapshot.done) {
      snapshot.done = [done = std::move(snapshot.done)](bool) { done(false); };
    }
  }
  if (core_->queue(shared_from_this(), std::move(snapshot), bytes)) return true;
  return shortened ? false : dropped(&DiskCounters::drops_queue);
}

bool SectionCore::write(const DiskSnapshot& snapshot) {
  const auto drop = [this](std::uint64_t DiskCounters::* cause) {
    meter_->add(cause);
    return false;
  };
  const std::shared_ptr<DigestFolder> now = folder();
  if (now == nullptr) return drop(&DiskCounters::drops_suspended);
  if (!now->holds_lock()) return drop(&DiskCounters::drops_read_only);
  const RootName root = now->volume().root_of(snapshot.salt);
  const MissingPart missing{.known = now->known(root, snapshot.tokens),
                            .pages = missing_of(*now, root, snapshot)};
  if (missing.pages.empty()) {
    now->mark_prefix_used(root, snapshot.tokens, layout_);
    return true;
  }
  if (core_->suspended()) return drop(&DiskCounters::drops_suspended);
  if (lacks_pages(snapshot, missing.pages)) return drop(&DiskCounters::drops_incomplete);
  std::vector<WritePlan> plans =
      plan_writes(digest_, root, layout_, snapshot, missing, core_->options().run_bytes);
  if (!noted_) {
    // Once for each folder; without a note everything works.
    noted_ = core_->change_directory(now->volume(), [&](DirectoryUsage::Change& change) {
      static_cast<void>(now->keep_note(note_, change));
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.clear();
  }
  writing_ = &snapshot;
  cleared_ = false;
  bool stored = true;
  for (WritePlan& plan : plans) {
    core_->run_tasks();
    const std::shared_ptr<StoredRun> parent = now->hold_parent(plan.record);
    if (cleared_ || (plan.record.first > 0 && parent == nullptr)) {
      stored = drop(&DiskCounters::drops_cleared);
    } else {
      stored = core_->write_run(*this, *now, plan);
    }
    if (parent != nullptr) --parent->holds;
    if (!stored) break;
  }
  writing_ = nullptr;
  return stored;
}

Status SectionCore::clear(const std::optional<std::string>& salt) {
  bool done = false;
  core_->run(
      [&] {
        const std::shared_ptr<DigestFolder> now = folder();
        if (now == nullptr || !now->holds_lock()) return;
        if (writing_ != nullptr && (!salt || writing_->salt == *salt)) cleared_ = true;
        core_->drop_waiting(*this, salt);
        std::optional<RootName> root;
        if (salt.has_value()) root = now->volume().root_of(*salt);
        done = core_->change_directory(
            now->volume(), [&](DirectoryUsage::Change& change) { now->clear(root, change); });
      },
      true);
  if (done) return {};
  return {Code::busy,
          fmt::format("disk cache {}: {} is written by another process, or not at all now: "
                      "clear it there, or later",
                      core_->options().directory, name_.substr(0, 16))};
}

}  // namespace drafthouse
