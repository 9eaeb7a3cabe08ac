#include "host/host_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>

namespace drafthouse {
namespace {

std::size_t machine_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                               : 0;
}

}  // namespace

HostCore::HostCore(const HostOptions& options, HookClaim hooks)
    : options_(options),
      hooks_(std::move(hooks)),
      budget_(options.memory_bytes != 0 ? options.memory_bytes : machine_bytes() / 10 * 9),
      disks_([log = options.log](std::string_view line) {
        if (log) log(LogLevel::warning, line);
      }),
      caches_(&disks_),
      threads_(std::make_shared<ThreadPool>(options.threads)),
      background_(std::make_unique<Background>(2)) {
  PoolOptions pool;
  pool.idle_unload_s = options_.idle_unload_s;
  pool.load_cooldown_s = options_.load_cooldown_s;
  pool.switch_after_s = options_.switch_after_s;
  pool.log = options_.log;
  pool.relieve = [this](const std::string& model) {
    const auto own = caches_.find(totals(model)->identity());
    return relieve(own == nullptr ? nullptr : &own->pages()->ledger());
  };
  pool.relievable = [this] { return caches_.ram_bytes(); };
  pool_ = std::make_unique<Pool>(*this, budget_, clock(), std::move(pool));
  budget_.set_relief([this](std::size_t, const MemoryLedger& requester) {
    return relieve(&requester) || pool_->unload_idle();
  });
}

HostCore::~HostCore() { close(); }

void HostCore::close() {
  if (background_ == nullptr) return;
  budget_.set_relief({});
  // Engines, and with them all requests, end here. Streams may still look for the pool.
  pool_->shut_down();
  background_.reset();
  for (const auto& [identity, status] : caches_.shutdown()) {
    log(LogLevel::error,
        fmt::format("the cache of {} did not close: {}", identity.text(), status.message()));
  }
}

void HostCore::log(LogLevel level, const std::string& line) const {
  if (options_.log) options_.log(level, line);
}

std::shared_ptr<ModelTotals> HostCore::totals(const std::string& model) {
  const std::lock_guard<std::mutex> lock(totals_lock_);
  std::shared_ptr<ModelTotals>& totals = totals_[model];
  if (totals == nullptr) totals = std::make_shared<ModelTotals>();
  return totals;
}

void HostCore::forget(const std::string& model) {
  const std::lock_guard<std::mutex> lock(totals_lock_);
  totals_.erase(model);
}

Result<MemoryNeed> HostCore::estimate(const ModelSpec& spec) {
  return estimate_pair(spec, weights_);
}

Result<std::shared_ptr<ModelEngine>> HostCore::load(const ModelSpec& spec,
                                                    const std::atomic<bool>* cancel) {
  HostParts parts{
      .budget = &budget_,
      .threads = threads_,
      .weights = &weights_,
      .caches = &caches_,
      .gate = &gate_,
      .background = background_.get(),
      .log = [this](std::string_view line) { log(LogLevel::warning, std::string(line)); }};
  ProgressFn progress;
  if (options_.load_progress) {
    progress = [&](std::uint64_t done, std::uint64_t total) {
      options_.load_progress(spec.name, done, total);
    };
  }
  Result<std::shared_ptr<PairEngine>> engine =
      PairEngine::load(spec, parts, totals(spec.name), progress, cancel);
  if (!engine.ok()) return engine.status();
  const EngineInfo& info = engine.value()->info();
  log(LogLevel::info, fmt::format("loaded \"{}\" in {:.2f} s: {}{}", spec.name, info.load_s,
                                  info.target, info.draft.empty() ? "" : " with " + info.draft));
  return std::shared_ptr<ModelEngine>(std::move(engine).value());
}

bool HostCore::relieve(const MemoryLedger* requester) {
  const std::vector<CacheRegistry::Entry> entries = caches_.entries();
  for (const CacheRegistry::Entry& entry : entries) {
    if (entry.manager == nullptr || &entry.manager->pages()->ledger() != requester) continue;
    if (entry.manager->evict(false) > 0) return true;
  }
  CacheManager* cheapest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const CacheRegistry::Entry& entry : entries) {
    if (entry.manager == nullptr || &entry.manager->pages()->ledger() == requester) continue;
    const double value = entry.manager->cheapest();
    if (value >= least) continue;
    cheapest = entry.manager.get();
    least = value;
  }
  return cheapest != nullptr && cheapest->evict(true) > 0;
}

}  // namespace drafthouse
