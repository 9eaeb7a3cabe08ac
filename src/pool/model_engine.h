#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "drafthouse/host.h"

namespace drafthouse {

// A loaded model, as the pool sees it. Thread-safe.
class ModelEngine {
 public:
  virtual ~ModelEngine() = default;
  // Requests that have not ended.
  virtual std::size_t active() const = 0;
  // Ends all requests with this status, refuses new ones, and waits until nothing runs any more.
  virtual void stop(const Status& status) = 0;
  // Bytes that go when this engine goes.
  virtual std::size_t exclusive_bytes() const = 0;
  // Leaves its figures where they outlive the engine, and its cache to nobody or to a later load.
  virtual Status release(bool keep_cache, double deadline_s) = 0;
};

// What a load will take, before it is tried.
struct MemoryNeed {
  std::size_t weights = 0;
  std::size_t pages = 0;
  std::size_t scratch = 0;
  std::size_t total() const { return weights + pages + scratch; }
};

// Makes engines. Called on the pool's thread, one call at a time, with no lock held.
class EngineLoader {
 public:
  virtual ~EngineLoader() = default;
  virtual Result<MemoryNeed> estimate(const ModelSpec& spec) = 0;
  // `cancel` is set when nobody wants the model any more.
  virtual Result<std::shared_ptr<ModelEngine>> load(const ModelSpec& spec,
                                                    const std::atomic<bool>* cancel) = 0;
};

// A request that may have to wait for its model. Its functions are called with no lock held.
class PoolRequest {
 public:
  virtual ~PoolRequest() = default;
  // Gives it to the engine. On failure it has not begun, and fail() follows.
  virtual Status start(ModelEngine& engine) = 0;
  // Ends it before it began. Called at most once.
  virtual void fail(const Status& status) = 0;
  // On the pool's clock; 0: none.
  virtual double deadline_s() const = 0;
};

}  // namespace drafthouse
