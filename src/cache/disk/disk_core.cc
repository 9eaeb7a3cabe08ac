#include "cache/disk/disk_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/units.h"

namespace drafthouse {
namespace {

constexpr std::chrono::milliseconds kWakeEvery{500};  // to look at the clock
constexpr std::size_t kJobsMax = 4096;
constexpr std::uint64_t kQuarantineBytesMax = std::uint64_t{64} << 20;

std::uint64_t quarantine_bytes(const DiskOptions& options) {
  const std::uint64_t budget = options.budget_bytes;
  return budget == 0 ? kQuarantineBytesMax : std::min(kQuarantineBytesMax, budget / 32);
}

}  // namespace

DiskCore::DiskCore(FileSystem& files, const Clock& clock, DiskOptions options, DiskLogFn log)
    : options_(std::move(options)),
      log_(std::move(log)),
      services_{files, clock, meter_, log_, quarantine_bytes(options_), options_.lock_wait_s} {}

Status DiskCore::open() {
  Status opened = open_volume(true);
  if (opened.code() == Code::invalid_argument || opened.code() == Code::unsupported) return opened;
  next_maintenance_s_ = services_.clock.now_s() + options_.lock_retry_s;
  return {};
}

Status DiskCore::open_volume(bool first) {
  Result<std::shared_ptr<DiskVolume>> opened =
      DiskVolume::open(services_, options_.directory, true);
  if (!opened.ok()) {
    const Code code = opened.status().code();
    const bool refused = code == Code::invalid_argument || code == Code::unsupported;
    if (!first || !refused) {
      log_.say_once("directory", opened.status().message() + "; going on without it, trying again");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    why_off_ = opened.status().message();
    return opened.status();
  }
  log_.recovered("directory", fmt::format("disk cache {}: in use again", options_.directory));
  const std::shared_ptr<DiskVolume> volume = std::move(opened).value();
  const bool read_only = !volume->read_only_why().empty();
  if (!first && read_only && this->volume() != nullptr) return {};  // still
  evictor_ = std::make_unique<Evictor>(*volume, options_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    volume_ = volume;
    why_off_.clear();
  }
  if (read_only) {
    log_.say_once("read only", fmt::format("disk cache {}: {}: it is only read", options_.directory,
                                           volume->read_only_why()));
  } else {
    log_.recovered("read only",
                   fmt::format("disk cache {}: can be written now", options_.directory));
  }
  const std::uint64_t used = volume->usage().bytes_about();
  if (first && options_.budget_bytes != 0 && used > evictor_->limit()) {
    log_.say(
        fmt::format("disk cache {}: holds {}, the limit is {}: what was used longest ago goes as "
                    "new state is stored",
                    options_.directory, human_bytes(used), human_bytes(options_.budget_bytes)));
  }
  return {};
}

DiskLimits DiskCore::limits() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_;
}

void DiskCore::set_limits(const DiskLimits& limits) {
  const auto change = [this, limits] {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (static_cast<const DiskLimits&>(options_) == limits) return;
      static_cast<DiskLimits&>(options_) = limits;
    }
    log_.say(fmt::format("disk cache {}: other limits now: {} at most, {} stay free",
                         options_.directory,
                         limits.budget_bytes == 0 ? "any size" : human_bytes(limits.budget_bytes),
                         human_bytes(limits.free_floor_bytes)));
  };
  run(change, false);
}

std::shared_ptr<DiskVolume> DiskCore::volume() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return volume_;
}

std::string DiskCore::why_off() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_off_;
}

Result<std::shared_ptr<SectionCore>> DiskCore::section(const StateDigest& digest,
                                                       const StateLayout& layout, StateNote note) {
  std::shared_ptr<SectionCore> made;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<SectionCore>& slot = sections_[digest.hex()];
    if (std::shared_ptr<SectionCore> known = slot.lock(); known != nullptr) {
      const auto same = [](const GroupLayout& a, const GroupLayout& b) {
        return a.page_bytes == b.page_bytes && a.reach == b.reach && a.sink == b.sink;
      };
      const std::vector<GroupLayout>& groups = known->layout().groups;
      if (std::equal(groups.begin(), groups.end(), layout.groups.begin(), layout.groups.end(),
                     same)) {
        return known;
      }
      return Status(Code::mismatch,
                    fmt::format("disk cache: digest {} is open with another layout: "
                                "the layout must be part of the digest",
                                digest.hex().substr(0, 16)));
    }
    made = std::make_shared<SectionCore>(shared_from_this(), digest, layout, std::move(note));
    slot = made;
  }
  run([this, made] { made->maintain(volume()); }, true);
  return made;
}

std::vector<std::shared_ptr<SectionCore>> DiskCore::sections() const {
  std::vector<std::shared_ptr<SectionCore>> live;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [digest, section] : sections_) {
    if (std::shared_ptr<SectionCore> core = section.lock(); core != nullptr) {
      live.push_back(std::move(core));
    }
  }
  return live;
}

std::vector<std::shared_ptr<DigestFolder>> DiskCore::held_folders() const {
  std::vector<std::shared_ptr<DigestFolder>> held;
  for (const std::shared_ptr<SectionCore>& section : sections()) {
    std::shared_ptr<DigestFolder> folder = section->folder();
    if (folder != nullptr && folder->holds_lock()) held.push_back(std::move(folder));
  }
  return held;
}

std::size_t DiskCore::room_in_queue() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_ || jobs_.size() >= kJobsMax) return 0;
  return options_.queue_bytes - std::min(options_.queue_bytes, queued_bytes_);
}

std::size_t DiskCore::queued_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queued_bytes_;
}

bool DiskCore::queue(std::shared_ptr<SectionCore> section, DiskSnapshot snapshot,
                     std::size_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_ || jobs_.size() >= kJobsMax || queued_bytes_ + bytes > options_.queue_bytes) {
      return false;
    }
    queued_bytes_ += bytes;
    jobs_.push_back({std::move(section), std::move(snapshot), bytes});
  }
  changed_.notify_all();
  return true;
}

void DiskCore::drop_waiting(const SectionCore& section, const std::optional<std::string>& salt) {
  std::vector<Job> dropped;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Job> kept;
    for (Job& job : jobs_) {
      const bool hit = job.section.get() == &section && (!salt || job.snapshot.salt == *salt);
      if (hit) queued_bytes_ -= job.bytes;
      if (hit)
        dropped.push_back(std::move(job));
      else
        kept.push_back(std::move(job));
    }
    jobs_.swap(kept);
  }
  for (Job& job : dropped) {
    job.section->meter().add(&DiskCounters::drops_cleared);
    if (job.snapshot.done) job.snapshot.done(false);
  }
}

void DiskCore::run(std::function<void()> task, bool wait) {
  if (!options_.threaded || on_writer_thread()) return task();
  auto finished = std::make_shared<bool>(false);
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_) return;
  tasks_.push_back([this, task = std::move(task), finished] {
    task();
    const std::lock_guard<std::mutex> done(mutex_);
    *finished = true;
  });
  changed_.notify_all();
  if (wait) changed_.wait(lock, [&] { return *finished || stopped_; });
}

void DiskCore::run_tasks() {
  for (;;) {
    std::function<void()> task;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    task = nullptr;
    changed_.notify_all();
  }
}

bool DiskCore::step() {
  run_tasks();
  Job job;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (jobs_.empty() || stopped_) return false;
    job = std::move(jobs_.front());
    jobs_.pop_front();
    working_ = true;
  }
  const bool stored = job.section->write(job.snapshot);
  if (stored) job.section->meter().add(&DiskCounters::snapshots_stored);
  if (job.snapshot.done) job.snapshot.done(stored);
  const std::size_t bytes = job.bytes;
  job = {};  // pages go back before anybody is told that the queue is empty
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queued_bytes_ -= bytes;
    working_ = false;
  }
  changed_.notify_all();
  return true;
}

void DiskCore::thread_loop() {
  set_writer_thread();
  for (;;) {
    maintain_if_due();
    if (step()) continue;
    std::unique_lock<std::mutex> lock(mutex_);
    if (stopped_) return;
    changed_.wait_for(lock, kWakeEvery,
                      [this] { return stopped_ || !tasks_.empty() || !jobs_.empty(); });
  }
}

void DiskCore::drive() {
  if (options_.threaded) return;
  maintain_if_due();
  while (step()) {
  }
}

void DiskCore::write_uses() {
  for (const std::shared_ptr<SectionCore>& section : sections()) {
    if (const auto folder = section->folder(); folder != nullptr) folder->write_uses();
  }
}

bool DiskCore::flush(double timeout_s) {
  if (!options_.threaded) {
    drive();
    write_uses();
    return true;
  }
  pace_.begin_hurry();
  bool empty = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(std::max(0.0, timeout_s)),
                      [this] { return (jobs_.empty() && !working_) || stopped_; });
    empty = jobs_.empty() && !working_;
  }
  pace_.end_hurry();
  if (empty) run([this] { write_uses(); }, true);
  return empty;
}

void DiskCore::stop() {
  std::deque<Job> jobs;
  std::deque<std::function<void()>> tasks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    jobs.swap(jobs_);
    tasks.swap(tasks_);
    queued_bytes_ = 0;
  }
  pace_.stop();
  changed_.notify_all();
  for (Job& job : jobs) {
    job.section->meter().add(&DiskCounters::drops_queue);
    if (job.snapshot.done) job.snapshot.done(false);
  }
}

bool DiskCore::suspended() const {
  const double now = services_.clock.now_s();
  const std::lock_guard<std::mutex> lock(mutex_);
  return now < suspended_until_s_;
}

void DiskCore::maintain_if_due() {
  if (services_.clock.now_s() < next_maintenance_s_) return;
  maintain();
  next_maintenance_s_ = services_.clock.now_s() + options_.lock_retry_s;
}

void DiskCore::maintain() {
  std::shared_ptr<DiskVolume> now = volume();
  if (now != nullptr && !now->still_there()) {
    log_.say_once("directory",
                  fmt::format("disk cache {}: the directory has gone; going on without "
                              "it, trying again",
                              options_.directory));
    evictor_.reset();
    const std::lock_guard<std::mutex> lock(mutex_);
    volume_ = now = nullptr;
    why_off_ = "the directory has gone";
  }
  if (now == nullptr || !now->read_only_why().empty()) static_cast<void>(open_volume(false));
  now = volume();
  for (const std::shared_ptr<SectionCore>& section : sections()) section->maintain(now);
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(sections_, [](const auto& entry) { return entry.second.expired(); });
}

bool DiskCore::drop(SectionCore& section, std::uint64_t DiskCounters::* cause) {
  section.meter().add(cause);
  return false;
}

bool DiskCore::write_run(SectionCore& section, DigestFolder& folder, WritePlan& plan) {
  if (evictor_ == nullptr || &folder.volume() != volume().get()) {
    return drop(section, &DiskCounters::drops_suspended);
  }
  std::uint64_t pages = 0;
  std::uint64_t page_bytes = 0;
  for (const RunGroup& group : plan.record.groups) {
    pages += group.pages.size();
    page_bytes += group.pages.size() * group.page_bytes;
  }
  // The index log grows by the record too.
  const std::uint64_t bytes =
      charged_bytes(plan.record) + charged_bytes(std::uint64_t{encoded_bytes(plan.record)});
  RunWriter writer(folder, plan, pace_);
  std::uint64_t DiskCounters::* dropped = nullptr;
  const Errno error = store(folder, writer, bytes, dropped);
  if (error != 0 || dropped != nullptr) {
    DirectoryUsage::Change change;
    if (writer.made_files() && folder.volume().usage().lock(change) == 0) writer.abandon(change);
  }
  if (dropped != nullptr) return drop(section, dropped);
  if (error == EBUSY) return drop(section, &DiskCounters::drops_lock);
  if (error == ECANCELED) return drop(section, &DiskCounters::drops_queue);
  if (error != 0) return failed(section, error);
  section.meter().add(&DiskCounters::writes, pages);
  section.meter().add(&DiskCounters::write_bytes, page_bytes);
  log_.recovered("write", fmt::format("disk cache {}: writing works again", options_.directory));
  return true;
}

// Names change under the directory's lock too, so that who counts the directory sees each file
// once; bringing bytes to disk takes long and goes without.
Errno DiskCore::store(DigestFolder& folder, RunWriter& writer, std::uint64_t bytes,
                      std::uint64_t DiskCounters::*& dropped) {
  DirectoryUsage& usage = folder.volume().usage();
  const std::vector<std::shared_ptr<DigestFolder>> held = held_folders();
  evictor_->prepare(bytes, held);
  {
    DirectoryUsage::Change change;
    Errno error = usage.lock(change);
    if (error != 0) return error;
    const Evictor::Room room = evictor_->make_room(bytes, held, change);
    if (room == Evictor::Room::over_budget) dropped = &DiskCounters::drops_budget;
    if (room == Evictor::Room::under_free_floor) dropped = &DiskCounters::drops_free_floor;
    if (dropped == nullptr) error = writer.make_files(change);
    if (error != 0 || dropped != nullptr) return error;
  }
  using Step = Errno (RunWriter::*)(DirectoryUsage::Change&);
  Errno error = writer.write();
  for (const Step place : {&RunWriter::place_pages, &RunWriter::place_manifest}) {
    if (error != 0) return error;
    DirectoryUsage::Change change;
    error = usage.lock(change);
    if (error == 0) error = (writer.*place)(change);
    change.finish();
    if (error == 0) error = writer.sync_names();
  }
  if (error != 0) return error;
  DirectoryUsage::Change change;
  error = usage.lock(change);
  if (error == 0 && !writer.publish(change)) dropped = &DiskCounters::drops_cleared;
  return error;
}

bool DiskCore::failed(SectionCore& section, Errno error) {
  section.meter().add(&DiskCounters::write_errors);
  log_.say_once("write",
                fmt::format("disk cache {}: writing failed: {}; going on without, next try "
                            "in {} s",
                            options_.directory, describe(error), options_.error_retry_s));
  next_maintenance_s_ = -1e300;  // the directory may have gone
  const double until = services_.clock.now_s() + options_.error_retry_s;
  const std::lock_guard<std::mutex> lock(mutex_);
  suspended_until_s_ = until;
  return false;
}

bool DiskCore::change_directory(DiskVolume& volume,
                                const std::function<void(DirectoryUsage::Change&)>& change) {
  DirectoryUsage::Change under_lock;
  if (volume.usage().lock(under_lock) != 0) return false;
  change(under_lock);
  return true;
}

}  // namespace drafthouse
