#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/background.h"
#include "cache/cache_registry.h"
#include "drafthouse/host.h"
#include "engine/engine_thread.h"
#include "engine/internals.h"
#include "engine/weight_store.h"
#include "pool/model_engine.h"

namespace drafthouse {

// What the engines of a host have in common. All of it outlives them.
struct HostParts {
  MemoryBudget* budget = nullptr;
  std::shared_ptr<ThreadPool> threads = {};
  WeightStore* weights = nullptr;
  CacheRegistry* caches = nullptr;
  StepGate* gate = nullptr;
  Background* background = nullptr;
  std::function<void(std::string_view line)> log = {};  // what a load has to say; may be empty
};

// Figures of one model name that go on over its loads. Thread-safe.
class ModelTotals {
 public:
  void add(const SchedulerCounters& counters);
  SchedulerCounters counters() const;
  void set_identity(const CacheIdentity& identity);
  // Empty before the first load.
  CacheIdentity identity() const;

 private:
  mutable std::mutex lock_;
  SchedulerCounters counters_;
  CacheIdentity identity_;
};

// A loaded pair with its thread and its lease on a prefix cache. Thread-safe.
class PairEngine final : public ModelEngine {
 public:
  static Result<std::shared_ptr<PairEngine>> load(const ModelSpec& spec, const HostParts& parts,
                                                  std::shared_ptr<ModelTotals> totals,
                                                  const ProgressFn& progress,
                                                  const std::atomic<bool>* cancel);
  ~PairEngine() override;

  const EngineInfo& info() const { return pair_->info; }
  Result<std::vector<std::uint32_t>> encode(const SubmitRequest& request) const;
  // The cache that a request of now uses; null with caching off.
  std::shared_ptr<CacheManager> cache() const;
  Status reconfigure(const CacheConfig& config);
  EngineThread& thread() { return *thread_; }
  std::weak_ptr<EngineThread> thread_handle() const { return thread_; }
  // Rows of this engine's memory; weights that other engines use too are left out.
  std::vector<LedgerRow> ledger(const std::string& model) const;
  const PageStore* pages() const { return pair_->pages.get(); }
  std::size_t shared_weight_bytes() const;

  std::size_t active() const override { return thread_->tasks(); }
  void stop(const Status& status) override { thread_->stop(status); }
  std::size_t exclusive_bytes() const override;
  Status release(bool keep_cache, double deadline_s) override;

 private:
  PairEngine(std::unique_ptr<Engine::Internals> pair, const HostParts& parts,
             std::shared_ptr<ModelTotals> totals);

  CacheRegistry& caches_;
  std::shared_ptr<ModelTotals> totals_;
  std::unique_ptr<Engine::Internals> pair_;
  mutable std::mutex lease_lock_;  // pair_->cache
  std::shared_ptr<EngineThread> thread_;
};

// What loading a model will take, from its headers alone.
Result<MemoryNeed> estimate_pair(const ModelSpec& spec, const WeightStore& weights);

}  // namespace drafthouse
