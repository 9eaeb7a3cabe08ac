#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capi/result_views.h"
#include "drafthouse/drafthouse.h"
#include "drafthouse/host.h"

// What the handles of the C ABI stand for.

namespace drafthouse::capi {

// Numbers, dressed as pointers, of things that live until they are taken. A number is never used
// again, so an old handle finds nothing. Thread-safe.
template <class Opaque, class T>
class HandleTable {
 public:
  Opaque* add(std::shared_ptr<T> thing) {
    const std::lock_guard<std::mutex> lock(lock_);
    const std::uintptr_t number = next_;
    things_.emplace(number, std::move(thing));
    next_ += 2;
    return reinterpret_cast<Opaque*>(number);
  }
  std::shared_ptr<T> find(const Opaque* handle) const {
    const std::lock_guard<std::mutex> lock(lock_);
    const auto found = things_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == things_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> take(const Opaque* handle) {
    const std::lock_guard<std::mutex> lock(lock_);
    const auto found = things_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == things_.end()) return nullptr;
    std::shared_ptr<T> thing = std::move(found->second);
    things_.erase(found);
    return thing;
  }

 private:
  mutable std::mutex lock_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<T>> things_;
  std::uintptr_t next_ = 1;  // odd: never the address of a struct
};

// A host, and who is in it: calls hold `calls` shared, the end of the host alone.
struct HostHandle {
  std::shared_mutex calls;
  std::unique_ptr<Host> host;  // null once destroyed
};

struct StreamHandle {
  std::unique_ptr<Stream> stream;
  std::atomic<bool> destroyed{false};
  std::mutex taking;  // held by the one thread in next(); guards what follows
  Event event;        // taken last; what the caller's dh_event points into
  dh_cache_report cache = {};
  std::vector<dh_tool_call> calls = {};
  ResultViews result;
};

// The process's. Never destroyed, as threads may still call while it ends.
HandleTable<dh_host, HostHandle>& hosts();
HandleTable<dh_stream, StreamHandle>& streams();

// A handle of a host that was made elsewhere.
dh_host* adopt(std::unique_ptr<Host> host);

}  // namespace drafthouse::capi
