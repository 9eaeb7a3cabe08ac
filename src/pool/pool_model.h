#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "pool/pool.h"

namespace drafthouse {

// One model that the pool knows. Guarded by the pool's lock; one that is loading or unloading is
// neither removed nor loaded nor unloaded by anybody else while the lock is open.
struct Pool::Model {
  struct Waiting {
    std::shared_ptr<PoolRequest> request;
    double since_s = 0;
  };

  ModelSpec spec;
  ModelState state = ModelState::registered;
  Status failure;
  double cool_until_s = 0;
  bool pinned = false;
  bool wanted = false;  // somebody waits in load()
  double wanted_since_s = 0;
  bool dry = false;       // its new requests wait, so that it can leave
  bool removing = false;  // takes nothing new and is not loaded again
  bool unload_asked = false;
  bool was_active = false;
  double last_use_s = 0;
  std::deque<Waiting> waiting;
  std::shared_ptr<ModelEngine> engine;
  std::uint32_t starting = 0;  // threads that give requests to the engine now
  std::optional<MemoryNeed> need;
  std::atomic<bool> cancel_load{false};
  std::uint64_t requests = 0;
  std::uint64_t cancelled = 0;  // of them, before they reached an engine
  std::uint64_t failed = 0;
  std::uint64_t loads = 0;
  std::uint64_t unloads = 0;
  std::uint64_t attempts = 0;  // loads that ended, well or not

  void count_end(const Status& status) {
    ++(status.code() == Code::cancelled ? cancelled : failed);
  }

  bool wants_load() const { return wanted || !waiting.empty(); }
  double waiting_since() const {
    double since = wanted ? wanted_since_s : std::numeric_limits<double>::infinity();
    if (!waiting.empty()) since = std::min(since, waiting.front().since_s);
    return since;
  }
  bool open() const { return state == ModelState::ready && !dry; }
  bool busy() const { return starting > 0 || (engine != nullptr && engine->active() > 0); }
  bool idle() const { return state == ModelState::ready && !busy(); }
};

}  // namespace drafthouse
