#include "cache/disk/disk_directory.h"

#include <sys/resource.h>

#include <utility>

#include "cache/disk/disk_core.h"

namespace drafthouse {
namespace {

constexpr int kNice = 10;  // compute threads go first

}  // namespace

Result<std::shared_ptr<DiskDirectory>> DiskDirectory::open(FileSystem& files, const Clock& clock,
                                                           DiskOptions options, DiskLogFn log) {
  auto core = std::make_shared<DiskCore>(files, clock, std::move(options), std::move(log));
  Status status = core->open();
  if (!status.ok()) return status;
  return std::shared_ptr<DiskDirectory>(new DiskDirectory(std::move(core)));
}

DiskDirectory::DiskDirectory(std::shared_ptr<DiskCore> core) : core_(std::move(core)) {
  if (!core_->options().threaded) return;
  writer_ = std::thread([core_of_thread = core_] {
    setpriority(PRIO_PROCESS, 0, kNice);  // of this thread only; where refused, it is not needed
    core_of_thread->thread_loop();
  });
}

DiskDirectory::~DiskDirectory() {
  core_->stop();
  if (!writer_.joinable()) return;
  // The last owner may have been a callback on the writer's thread, which ends on its own then.
  if (core_->on_writer_thread())
    writer_.detach();
  else
    writer_.join();
}

void DiskDirectory::begin_request() { core_->pace().begin_request(); }

void DiskDirectory::end_request() { core_->pace().end_request(); }

bool DiskDirectory::flush(double timeout_s) { return core_->flush(timeout_s); }

void DiskDirectory::drive() { core_->drive(); }

DiskDirectory::Usage DiskDirectory::usage() const {
  Usage usage;
  usage.budget_bytes = core_->limits().budget_bytes;
  usage.queued_bytes = core_->queued_bytes();
  const std::shared_ptr<DiskVolume> volume = core_->volume();
  if (volume != nullptr)
    usage.bytes = volume->usage().bytes_about();
  else
    usage.off = core_->why_off();
  return usage;
}

DiskCounters DiskDirectory::counters() const { return core_->meter().read(); }

void DiskDirectory::set_limits(const DiskLimits& limits) { core_->set_limits(limits); }

}  // namespace drafthouse
