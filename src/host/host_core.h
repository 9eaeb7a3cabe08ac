#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine_hooks.h"
#include "host/pair_engine.h"
#include "pool/pool.h"

namespace drafthouse {

// The parts of a host in the order they need each other. Streams hold it weakly.
class HostCore final : public EngineLoader {
 public:
  // `hooks`: the claim on those of options.hook_plugins.
  HostCore(const HostOptions& options, HookClaim hooks);
  ~HostCore() override;

  // Ends all requests and stops the threads. Called once, before the destructor or by it.
  void close();

  Pool& pool() { return *pool_; }
  CacheRegistry& caches() { return caches_; }
  DiskDirectories& disks() { return disks_; }
  const Clock& clock() const { return system_clock(); }
  MemoryBudget& budget() { return budget_; }
  const MemoryBudget& budget() const { return budget_; }
  std::shared_ptr<ModelTotals> totals(const std::string& model);
  // Its figures, once the model has been removed.
  void forget(const std::string& model);

  Result<MemoryNeed> estimate(const ModelSpec& spec) override;
  Result<std::shared_ptr<ModelEngine>> load(const ModelSpec& spec,
                                            const std::atomic<bool>* cancel) override;

 private:
  // In the order of the design: the requester's own cached state, other models' above their floor,
  // idle models.
  bool relieve(const MemoryLedger* requester);
  void log(LogLevel level, const std::string& line) const;

  const HostOptions options_;
  const HookClaim hooks_;
  MemoryBudget budget_;
  WeightStore weights_;
  DiskDirectories disks_;
  CacheRegistry caches_;
  StepGate gate_;
  std::shared_ptr<ThreadPool> threads_;
  std::unique_ptr<Background> background_;
  std::mutex totals_lock_;
  std::map<std::string, std::shared_ptr<ModelTotals>> totals_;
  std::unique_ptr<Pool> pool_;
};

}  // namespace drafthouse
