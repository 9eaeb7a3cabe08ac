#include "drafthouse/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "base/forked.h"
#include "host/event_queue.h"
#include "host/fork_guard.h"
#include "host/host_core.h"
#include "host/request_form.h"
#include "text/allocated.h"

namespace drafthouse {
namespace {

// One submitted request, wherever it is: waiting for its model, or a task of an engine.
class Request final : public PoolRequest, public std::enable_shared_from_this<Request> {
 public:
  Request(SubmitRequest wanted, double deadline_s, std::weak_ptr<HostCore> core)
      : wanted_(std::move(wanted)),
        deadline_s_(deadline_s),
        core_(std::move(core)),
        events_(std::make_shared<EventQueue>(wanted_.event_queue)) {
    events_->set_on_end([core = core_] {
      if (const auto host = core.lock()) host->pool().request_ended();
    });
  }

  const std::shared_ptr<EventQueue>& events() const { return events_; }
  double deadline_s() const override { return deadline_s_; }

  Status start(ModelEngine& model) override {
    auto& engine = static_cast<PairEngine&>(model);
    Result<std::vector<std::uint32_t>> ids = engine.encode(wanted_);
    if (!ids.ok()) return ids.status();
    auto task = std::make_shared<Task>();
    task->request.prompt_ids = std::move(ids).value();
    task->request.max_tokens = wanted_.max_tokens;
    task->request.width = wanted_.width;
    task->request.ignore_eos = wanted_.ignore_eos;
    task->request.stop = wanted_.stop;
    task->request.stop_ids = wanted_.stop_ids;
    task->request.sampling = wanted_.sampling;
    task->request.grammar = wanted_.grammar;
    task->request.logprobs = wanted_.logprobs;
    task->request.top_logprobs = wanted_.top_logprobs;
    task->request.prompt_logprobs = wanted_.prompt_logprobs;
    task->request.n = wanted_.n;
    task->request.reply = wanted_.reply;
    if (wanted_.reply.tools.empty()) task->request.reply.tools = wanted_.chat.tools;
    if (wanted_.use_cache) task->cache = engine.cache();
    task->salt = wanted_.salt;
    task->priority = wanted_.priority;
    task->deadline_s = deadline_s_;
    task->events = events_;
    const std::lock_guard<std::mutex> lock(lock_);
    if (cancelled_) return Status(Code::cancelled, "the request was cancelled");
    if (Status s = engine.thread().submit(task); !s.ok()) return s;
    task_ = std::move(task);
    thread_ = engine.thread_handle();
    events_->set_on_room([thread = std::weak_ptr<EngineThread>(thread_)] {
      if (const auto there = thread.lock()) there->nudge();
    });
    return {};
  }

  void fail(const Status& status) override { events_->ended(status, {}); }

  void cancel() {
    // Once the host has gone the request has ended. Held here, it outlasts this call.
    const std::shared_ptr<HostCore> core = core_.lock();
    if (core == nullptr) return;
    std::shared_ptr<Task> task;
    std::shared_ptr<EngineThread> thread;
    {
      const std::lock_guard<std::mutex> lock(lock_);
      cancelled_ = true;
      task = task_;
      thread = thread_.lock();
    }
    if (task != nullptr) {
      if (thread != nullptr) thread->cancel(*task);
      return;
    }
    core->pool().withdraw(wanted_.model, this,
                          Status(Code::cancelled, "the request was cancelled"));
  }

 private:
  const SubmitRequest wanted_;
  const double deadline_s_;
  const std::weak_ptr<HostCore> core_;
  const std::shared_ptr<EventQueue> events_;
  std::mutex lock_;
  bool cancelled_ = false;
  std::shared_ptr<Task> task_;
  std::weak_ptr<EngineThread> thread_;
};

class RequestStream final : public Stream {
 public:
  explicit RequestStream(std::shared_ptr<Request> request) : request_(std::move(request)) {}
  ~RequestStream() override { request_->cancel(); }

  std::optional<Event> next(double timeout_s) override {
    return request_->events()->next(timeout_s);
  }
  void cancel() override { request_->cancel(); }
  bool over() const override { return request_->events()->over(); }
  int event_fd() const override { return request_->events()->event_fd(); }

 private:
  std::shared_ptr<Request> request_;
};

class HostImpl final : public Host {
 public:
  HostImpl(const HostOptions& options, HookClaim hooks)
      : core_(std::make_shared<HostCore>(options, std::move(hooks))) {}
  ~HostImpl() override { core_->close(); }

  Status add(const ModelSpec& spec) override {
    if (Status s = check(spec); !s.ok()) return s;
    return core_->pool().add(spec);
  }

  Status load(const ModelSpec& spec) override {
    const bool known = core_->pool().entry(spec.name).ok();
    if (Status s = add(spec); !s.ok()) return s;
    Status status = core_->pool().load(spec.name);
    // As before: a name that this call made known goes with its failure.
    if (!status.ok() && !known) (void)core_->pool().remove(spec.name, {.deadline_s = 0});
    return status;
  }

  Status load(std::string_view name) override { return core_->pool().load(std::string(name)); }
  Status unload(const std::string& name, const UnloadOptions& options) override {
    if (Status s = check_wait("deadline_s", options.deadline_s); !s.ok()) return s;
    return core_->pool().unload(name, options);
  }
  Status remove(const std::string& name, const UnloadOptions& options) override {
    if (Status s = check_wait("deadline_s", options.deadline_s); !s.ok()) return s;
    const CacheIdentity identity = core_->totals(name)->identity();
    if (Status s = core_->pool().remove(name, options); !s.ok()) return s;
    core_->forget(name);
    // A cache that an earlier unload kept goes with the last name of its pair.
    for (const Pool::Entry& other : core_->pool().entries()) {
      if (core_->totals(other.spec.name)->identity() == identity) return {};
    }
    return core_->caches().shutdown(identity);
  }
  Status pin(const std::string& name, bool on) override { return core_->pool().pin(name, on); }

  Status reconfigure(const std::string& name, const CacheConfig& cache) override {
    const Result<Pool::Entry> entry = core_->pool().entry(name);
    if (!entry.ok()) return entry.status();
    if (Status s = check(name, cache); !s.ok()) return s;
    if (const auto engine = engine_of(entry.value())) {
      if (Status s = engine->reconfigure(cache); !s.ok()) return s;
    } else if (Status s = core_->disks().check(cache); !s.ok()) {
      return s;
    }
    return core_->pool().set_cache(name, cache);
  }

  Result<std::unique_ptr<Stream>> submit(const SubmitRequest& request) override {
    if (Status s = check_form(request); !s.ok()) return s;
    const double deadline = request.timeout_s == 0 ? 0 : core_->clock().now_s() + request.timeout_s;
    auto made = std::make_shared<Request>(request, deadline, core_);
    if (Status s = core_->pool().submit(request.model, made); !s.ok()) return s;
    return std::unique_ptr<Stream>(std::make_unique<RequestStream>(std::move(made)));
  }

  Result<std::size_t> clear_cache(const std::string& name,
                                  const std::optional<std::string>& salt) override {
    const Result<Pool::Entry> entry = core_->pool().entry(name);
    if (!entry.ok()) return entry.status();
    const auto manager = core_->caches().find(core_->totals(name)->identity());
    if (manager == nullptr) return nothing_to_clear(entry.value().spec);
    return salt.has_value() ? manager->clear(*salt) : manager->clear_all();
  }

  Status flush_cache(double deadline_s) override {
    if (Status s = check_wait("deadline_s", deadline_s); !s.ok()) return s;
    Status status;
    for (const CacheRegistry::Entry& entry : core_->caches().entries()) {
      if (entry.manager == nullptr) continue;
      if (Status s = entry.manager->flush(deadline_s); !s.ok()) status = std::move(s);
    }
    return status;
  }

  HostStats stats() const override;
  std::vector<LedgerRow> ledger() const override;

  Status drain(double deadline_s) override {
    if (Status s = check_wait("deadline_s", deadline_s); !s.ok()) return s;
    core_->pool().close();
    if (core_->pool().wait_until_idle(deadline_s)) return {};
    return Status(Code::cancelled,
                  fmt::format("requests still ran after {:.1f} s of draining", deadline_s));
  }

 private:
  // Of a model without a cache manager. What it has on disk is named by its weights, which are
  // known once it is loaded; that nothing was cleared must not look like success.
  static Result<std::size_t> nothing_to_clear(const ModelSpec& spec) {
    if (spec.cache.enabled && spec.cache.disk_directory.empty()) return std::size_t{0};
    return Status(
        Code::unsupported,
        spec.cache.enabled
            ? fmt::format(
                  "model \"{}\" is not loaded, and which state in {} is its own is known only "
                  "then: load it first, or clear the folder with drafthouse cache clear",
                  spec.name, spec.cache.disk_directory)
            : fmt::format(
                  "the cache of model \"{}\" is off: switch it on to clear what it has stored",
                  spec.name));
  }
  static std::shared_ptr<PairEngine> engine_of(const Pool::Entry& entry) {
    return std::static_pointer_cast<PairEngine>(entry.engine);
  }
  static Status check(const ModelSpec& spec) {
    if (Status s = check_name(spec.name); !s.ok()) return s;
    for (const std::string* path : {&spec.target, &spec.draft}) {
      if (Status s = check_path(spec.name, *path); !s.ok()) return s;
    }
    if (Status s = check(spec.name, spec.cache); !s.ok()) return s;
    if (spec.target.empty()) {
      return Status(Code::invalid_argument, fmt::format("model \"{}\" names no target", spec.name));
    }
    if (spec.sequences < 1 || spec.sequences > 64) {
      return Status(Code::invalid_argument,
                    fmt::format("model \"{}\": {} sequences; 1 to 64 can run at once", spec.name,
                                spec.sequences));
    }
    if (spec.queue < 1) {
      return Status(Code::invalid_argument,
                    fmt::format("model \"{}\": a queue of 0 would take no request", spec.name));
    }
    if (!(spec.weight > 0) || !std::isfinite(spec.weight)) {
      return Status(Code::invalid_argument,
                    fmt::format("model \"{}\": its weight must be above 0", spec.name));
    }
    return {};
  }

  static Status check(const std::string& name, const CacheConfig& cache) {
    if (Status s = check_path(name, cache.disk_directory); !s.ok()) return s;
    const Status status = check_settings(cache);
    if (status.ok()) return status;
    return Status(status.code(), fmt::format("model \"{}\": {}", name, status.message()));
  }

  static Status check_path(const std::string& name, const std::string& path) {
    if (path.find('\0') == std::string::npos) return {};
    return Status(Code::invalid_argument,
                  fmt::format("model \"{}\": a path with a NUL byte names no file", name));
  }

  // Names stand in messages, logs and figures.
  static Status check_name(const std::string& name) {
    constexpr std::size_t kNameMax = 256;
    const bool plain = std::none_of(name.begin(), name.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    if (!name.empty() && name.size() <= kNameMax && plain) return {};
    return Status(Code::invalid_argument,
                  fmt::format("a model's name has 1 to {} bytes and no control characters; this "
                              "one has {} bytes",
                              kNameMax, name.size()));
  }
  std::shared_ptr<HostCore> core_;
};

HostStats HostImpl::stats() const {
  HostStats all;
  all.memory_limit = core_->budget().limit();
  all.memory_used = core_->budget().used();
  all.memory_peak = core_->budget().peak();
  for (const Pool::Entry& entry : core_->pool().entries()) {
    ModelStats model;
    model.name = entry.spec.name;
    model.state = entry.state;
    model.why = entry.why;
    model.pinned = entry.pinned;
    model.queued = entry.waiting;
    model.requests = entry.requests;
    model.loads = entry.loads;
    model.unloads = entry.unloads;
    const std::shared_ptr<ModelTotals> totals = core_->totals(model.name);
    SchedulerCounters counters = totals->counters();
    if (const auto engine = engine_of(entry)) {
      counters += engine->thread().counters();
      model.info = engine->info();
      model.running = static_cast<std::uint32_t>(engine->thread().running());
      const std::size_t tasks = engine->thread().tasks();
      model.queued +=
          static_cast<std::uint32_t>(tasks - std::min<std::size_t>(tasks, model.running));
      model.shared_weight_bytes = engine->shared_weight_bytes();
      model.memory_bytes = engine->exclusive_bytes();
      if (engine->pages() != nullptr) model.memory_bytes += engine->pages()->ledger().total();
    }
    model.finished = counters.finished;
    model.cancelled = counters.cancelled + entry.cancelled;
    model.failed = counters.failed + entry.failed;
    model.prompt_tokens = counters.prompt_ids;
    model.generated_tokens = counters.generated_ids;
    model.turns = counters.turns;
    model.turn_tokens = counters.gained_ids;
    model.preempted = counters.preempted;
    model.checkpoints_skipped = counters.checkpoints_skipped;
    const CacheStats cache = core_->caches().stats(totals->identity());
    model.cache_lookups = cache.lookups;
    model.cache_hits = cache.hits;
    model.ram_hit_tokens = cache.ram_hit_tokens;
    model.disk_hit_tokens = cache.disk_hit_tokens;
    model.evicted_own = cache.evicted_own;
    model.evicted_pressure = cache.evicted_pressure;
    model.manager_rebuilds = cache.rebuilds;
    if (const auto manager = core_->caches().find(totals->identity())) {
      model.cache_pages = manager->ram_pages();
      model.cache_bytes = manager->ram_bytes();
    }
    all.models.push_back(std::move(model));
  }
  return all;
}

std::vector<LedgerRow> HostImpl::ledger() const {
  std::vector<LedgerRow> rows;
  std::set<const PageStore*> seen;
  const auto add_pages = [&](const std::string& model, const PageStore* pages) {
    if (pages == nullptr || !seen.insert(pages).second) return;
    for (const MemoryTag tag :
         {MemoryTag::kv_pages, MemoryTag::draft_pages, MemoryTag::recurrent}) {
      if (pages->ledger().bytes(tag) == 0) continue;
      rows.push_back({model, std::string(name_of(tag)), pages->ledger().bytes(tag)});
    }
  };
  std::size_t named = 0;
  for (const Pool::Entry& entry : core_->pool().entries()) {
    const auto engine = engine_of(entry);
    if (engine == nullptr) continue;
    for (LedgerRow& row : engine->ledger(entry.spec.name)) rows.push_back(std::move(row));
    add_pages(entry.spec.name, engine->pages());
  }
  // Caches whose engine has gone.
  for (const CacheRegistry::Entry& entry : core_->caches().entries()) {
    if (entry.manager != nullptr) add_pages(entry.identity.text(), entry.manager->pages().get());
  }
  for (const LedgerRow& row : rows) named += row.bytes;
  // What several models share, and what replaced caches still hold, belongs to none of them.
  const std::size_t used = core_->budget().used();
  if (used > named) rows.push_back({"", "shared", used - named});
  rows.push_back({"", std::string(name_of(MemoryTag::text)), text_allocated_bytes()});
  return rows;
}

}  // namespace

std::string_view name_of(ModelState state) {
  switch (state) {
    case ModelState::registered: return "registered";
    case ModelState::waiting: return "waiting";
    case ModelState::loading: return "loading";
    case ModelState::ready: return "ready";
    case ModelState::unloading: return "unloading";
    case ModelState::failed: return "failed";
  }
  return "?";
}

Result<std::unique_ptr<Host>> Host::create(const HostOptions& options) {
  if (forked()) return Status(Code::closed, std::string(kForked));
  const unsigned threads_max = std::max(16u, 4 * available_cores());
  if (options.threads > threads_max) {
    return Status(
        Code::invalid_argument,
        fmt::format("{} compute threads on {} cores would only wait for each other; {} is "
                    "the most",
                    options.threads, available_cores(), threads_max));
  }
  for (const auto& [what, seconds] : {std::pair{"idle_unload_s", options.idle_unload_s},
                                      std::pair{"load_cooldown_s", options.load_cooldown_s},
                                      std::pair{"switch_after_s", options.switch_after_s}}) {
    if (Status s = check_wait(what, seconds); !s.ok()) return s;
  }
  Result<HookClaim> hooks = claim_hook_plugins(options.hook_plugins);
  if (!hooks.ok()) return hooks.status();
  return guard_against_forks(std::make_unique<HostImpl>(options, std::move(hooks).value()));
}

}  // namespace drafthouse
