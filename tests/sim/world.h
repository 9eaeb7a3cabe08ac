#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "cache/cache_registry.h"
#include "cache/disk/faulty_file_system.h"
#include "cache/disk_directories.h"
#include "engine/scheduler.h"
#include "engine/step_order.h"
#include "pool/pool.h"
#include "tests/sim/fake_clock.h"
#include "tests/sim/fake_runner.h"
#include "tests/sim/hook_play.h"
#include "tests/sim/random.h"

namespace drafthouse {

// A host of made-up models in one thread, under a small budget, driven by a random schedule: loads,
// unloads, requests, cancellations, evictions, other cache settings, weights that are replaced on
// disk, loads that fail, clients that take no events. What must always hold is checked at every
// step.
//
//   World world(seed);
//   EXPECT_EQ(world.run(), "");   // what went wrong first, or nothing
class World {
 public:
  explicit World(std::uint32_t seed);
  ~World();
  std::string run();

  // For those who want to know that something happened.
  struct Counts {
    std::uint64_t tasks = 0;
    std::uint64_t finished = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t no_memory = 0;
    std::uint64_t hits = 0;
    std::uint64_t disk_hits = 0;
    std::uint64_t disk_faults = 0;
    std::uint64_t hook_conflicts = 0;
    std::uint64_t hooks_busy = 0;
    std::uint64_t loads = 0;
    std::uint64_t preempted = 0;
    std::uint64_t rebuilds = 0;
    std::uint64_t conflicts = 0;
    std::uint64_t evictions = 0;
    std::uint64_t chunks = 0;
    std::uint64_t steps = 0;
    std::uint64_t given_up_chunks = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Model;
  class Engine;
  class Loader;
  class Request;

  void complain(const std::string& what);
  void act();
  void submit();
  void cancel();
  void unload();
  void reconfigure();
  void contend();
  void replace_weights();
  void evict();
  void use_disk();
  Fault fault(const FileOperation& operation);
  void proceed(Engine& engine);
  void use_device();
  void layer();
  bool relieve();
  void check();
  void drain();
  void close();
  Engine* some_engine();
  // The cache settings of a model as they were resolved last.
  void resolved(Model& model, const std::shared_ptr<CacheManager>& manager);

  Random random_;
  std::string wrong_;
  FakeClock clock_;
  bool with_disk_ = false;
  bool disk_fails_ = false;
  std::size_t page_bytes_ = 0;
  std::size_t slab_bytes_ = 0;  // what a page pool takes from the system at once
  std::string folder_;
  FaultyFileSystem files_;
  DiskDirectories disks_;
  MemoryBudget budget_;
  CacheRegistry registry_;
  StepOrder order_;
  HookPlay hooks_;
  std::vector<std::unique_ptr<Model>> models_;
  std::vector<Engine*> engines_;  // owned by the pool
  std::vector<std::shared_ptr<Request>> requests_;
  // Work that engines have given to another thread.
  std::vector<std::function<void()>> background_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Pool> pool_;
  std::vector<std::weak_ptr<PageStore>> stores_;
  Counts counts_;
  Model* current_ = nullptr;  // resolved last
  bool draining_ = false;
  bool inside_ = false;  // in a pass or a load
};

}  // namespace drafthouse
