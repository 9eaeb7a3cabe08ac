#pragma once

#include <atomic>
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

#include "base/clock.h"
#include "base/memory_budget.h"
#include "pool/model_engine.h"

namespace drafthouse {

struct PoolOptions {
  double idle_unload_s = 0;
  double load_cooldown_s = 5;
  double switch_after_s = 2;
  bool own_thread = true;  // else somebody calls work_once()
  LogFn log = {};
  // Frees cached state that no sequence holds, for a load of this model: its own first, then that
  // of others above their floor. Whether it freed any. May be empty.
  std::function<bool(const std::string& model)> relieve = {};
  // Bytes of cached state that relieve() could free at most. Set when relieve is.
  std::function<std::size_t()> relievable = {};
};

// Which models are loaded: load, unload, pin, idle time-out, least recently used.
//
// A model is loaded once, however many want it; those who came meanwhile wait for it, in a group.
// Room is made of cached state first, then by unloading idle models that nobody waits for, least
// recently used first; nothing is given up where all of it would not be enough. Where only busy
// models could give room, they go on until the waiting is older than `switch_after_s`; from then on
// their new requests wait too, so that they run dry and leave. A load that fails cools down.
// Thread-safe.
class Pool {
 public:
  // All must outlive it.
  Pool(EngineLoader& loader, MemoryBudget& budget, const Clock& clock, PoolOptions options);
  // Ends everything as `closed`.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // conflict when the name stands for another specification.
  Status add(const ModelSpec& spec);
  // Has it loaded soon; returns at once.
  Status want(const std::string& name);
  // Waits until it is loaded, or has failed to.
  Status load(const std::string& name);
  Status unload(const std::string& name, const UnloadOptions& options);
  Status remove(const std::string& name, const UnloadOptions& options);
  Status pin(const std::string& name, bool on);
  // Notes the cache settings that later loads of the model begin with.
  Status set_cache(const std::string& name, const CacheConfig& cache);

  // Gives the request to its model, now or once it is loaded. An error means that nothing was kept.
  Status submit(const std::string& name, const std::shared_ptr<PoolRequest>& request);
  // Ends a request that still waits for its model; whether it was there.
  bool withdraw(const std::string& name, const PoolRequest* request, const Status& status);
  // Told by requests when they end.
  void request_ended();

  // Unloads the idle model that was used least recently, unless it is pinned; whether there was
  // one.
  bool unload_idle();
  // One piece of the pool's own work, a load or an unload; false when there is nothing to do now.
  bool work_once();
  // Refuses everything new from now on.
  void close();
  // Ends everything as `closed` and stops the thread. Idempotent; not from two threads at once.
  void shut_down();
  // Waits until no request is left; false at the deadline.
  bool wait_until_idle(double deadline_s);

  struct Entry {
    ModelSpec spec;
    ModelState state = ModelState::registered;
    std::string why = {};
    bool pinned = false;
    std::uint32_t waiting = 0;
    std::uint64_t requests = 0;
    std::uint64_t cancelled = 0;  // of them, while they waited for the model
    std::uint64_t failed = 0;
    std::uint64_t loads = 0;
    std::uint64_t unloads = 0;
    std::shared_ptr<ModelEngine> engine = {};
  };
  std::vector<Entry> entries() const;
  // not_found with the names there are.
  Result<Entry> entry(const std::string& name) const;

 private:
  struct Model;
  using ModelRef = std::shared_ptr<Model>;
  using Guard = std::unique_lock<std::mutex>;
  enum class Attempt : std::uint8_t { loaded, must_wait, failed, given_up };

  // Everything below requires the lock; what takes the guard opens it on its way.
  Result<ModelRef> find(const std::string& name);
  Status unknown(const std::string& name) const;
  void tell_changed();
  void note_activity();
  void fail_waiting(Guard& guard, Model& model, const Status& status);
  // Gives those that wait to the engine of a model that is ready.
  void serve(Guard& guard, const ModelRef& model);

  // The pool's own threads: loads and unloads, and watching deadlines while it does.
  void loop();
  void watch();
  void expire(Guard& guard);
  double next_deadline() const;
  void tidy(Guard& guard);
  bool unload_timed_out(Guard& guard);
  ModelRef next_to_load() const;
  double next_moment() const;
  Attempt try_load(Guard& guard, const ModelRef& model);
  Attempt estimate(Guard& guard, Model& model);
  // loaded: the room is there.
  Attempt make_room(Guard& guard, Model& model);
  Attempt load_now(Guard& guard, Model& model);
  // Takes the engine out and ends it. Requires state ready; leaves state registered.
  Status take_down(Guard& guard, Model& model, const UnloadOptions& options, const Status& why,
                   bool wait);
  std::string refusal(const Model& model, std::size_t free) const;
  Entry entry_of(const Model& model) const;
  void log(Guard& guard, LogLevel level, const std::string& line);

  EngineLoader& loader_;
  MemoryBudget& budget_;
  const Clock& clock_;
  const PoolOptions options_;
  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
  std::map<std::string, ModelRef> models_;
  bool closed_ = false;
  bool stopping_ = false;
  std::thread thread_;
  std::thread watch_;
};

}  // namespace drafthouse
