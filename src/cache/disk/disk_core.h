#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cache/disk/disk_meter.h"
#include "cache/disk/disk_options.h"
#include "cache/disk/disk_volume.h"
#include "cache/disk/evictor.h"
#include "cache/disk/run_writer.h"
#include "cache/disk/section_core.h"
#include "cache/disk/write_pace.h"

namespace drafthouse {

// The inside of a DiskDirectory: the open volume, the queue and the work of the writer's thread.
// All that changes files happens on that thread, so none of it needs a lock against itself.
class DiskCore : public std::enable_shared_from_this<DiskCore> {
 public:
  DiskCore(FileSystem& files, const Clock& clock, DiskOptions options, DiskLogFn log);

  // Refusals (see DiskVolume::open) only; what may work later is tried again.
  Status open();
  // Its limits change: see limits().
  const DiskOptions& options() const { return options_; }
  DiskLimits limits() const;
  // On the writer's thread, soon.
  void set_limits(const DiskLimits& limits);
  const DiskServices& services() const { return services_; }
  DiskMeter& meter() { return meter_; }
  WritePace& pace() { return pace_; }
  std::shared_ptr<DiskVolume> volume() const;
  std::string why_off() const;  // when there is no volume

  Result<std::shared_ptr<SectionCore>> section(const StateDigest& digest, const StateLayout& layout,
                                               StateNote note);

  // Queues a snapshot; the caller has counted its bytes as room_in_queue() allows.
  std::size_t room_in_queue() const;
  std::size_t queued_bytes() const;
  bool queue(std::shared_ptr<SectionCore> section, DiskSnapshot snapshot, std::size_t bytes);
  // Writer's thread: drops waiting snapshots of a section, of one salt or of all.
  void drop_waiting(const SectionCore& section, const std::optional<std::string>& salt);
  // Runs on the writer's thread before waiting snapshots; `wait`: returns when it is done.
  void run(std::function<void()> task, bool wait);
  bool suspended() const;

  void thread_loop();
  void drive();
  bool flush(double timeout_s);
  void stop();
  bool on_writer_thread() const { return writer_.load() == std::this_thread::get_id(); }
  void set_writer_thread() { writer_ = std::this_thread::get_id(); }

  // Writer's thread: what is urgent, between two runs.
  void run_tasks();
  // Writer's thread: stores one run. False: it was dropped, and counted.
  bool write_run(SectionCore& section, DigestFolder& folder, WritePlan& plan);
  // Under the directory's lock.
  bool change_directory(DiskVolume& volume,
                        const std::function<void(DirectoryUsage::Change&)>& change);

 private:
  struct Job {
    std::shared_ptr<SectionCore> section;
    DiskSnapshot snapshot;
    std::size_t bytes = 0;
  };

  bool step();  // one task or job; false: there was none
  void maintain_if_due();
  void maintain();
  Status open_volume(bool first);
  std::vector<std::shared_ptr<SectionCore>> sections() const;
  std::vector<std::shared_ptr<DigestFolder>> held_folders() const;
  bool drop(SectionCore& section, std::uint64_t DiskCounters::* cause);
  void write_uses();
  Errno store(DigestFolder& folder, RunWriter& writer, std::uint64_t bytes,
              std::uint64_t DiskCounters::*& dropped);
  bool failed(SectionCore& section, Errno error);

  DiskOptions options_;
  DiskMeter meter_;
  DiskLog log_;
  DiskServices services_;
  WritePace pace_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<DiskVolume> volume_;
  std::string why_off_;
  std::deque<std::function<void()>> tasks_;
  std::deque<Job> jobs_;
  std::size_t queued_bytes_ = 0;
  bool working_ = false;
  bool stopped_ = false;
  double suspended_until_s_ = -1e300;
  std::map<std::string, std::weak_ptr<SectionCore>> sections_;  // by digest
  std::atomic<std::thread::id> writer_{};

  // Writer's thread only.
  std::unique_ptr<Evictor> evictor_;
  double next_maintenance_s_ = -1e300;
};

}  // namespace drafthouse
