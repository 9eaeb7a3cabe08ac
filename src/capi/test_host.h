#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drafthouse/host.h"

// A host for tests: notes what it was asked, answers what it was told, has no threads.

namespace drafthouse::capi {

// The events that the test gives, then a cancelled one once cancel() was called.
class FakeStream final : public Stream {
 public:
  struct State {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Event> events;
    bool cancelled = false;
    bool over = false;
    int waiting = 0;
  };

  explicit FakeStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~FakeStream() override { close(descriptor_); }

  std::optional<Event> next(double timeout_s) override {
    std::unique_lock<std::mutex> lock(state_->lock);
    const auto ready = [&] { return state_->over || state_->cancelled || !state_->events.empty(); };
    ++state_->waiting;
    state_->changed.notify_all();
    state_->changed.wait_for(lock, std::chrono::duration<double>(timeout_s), ready);
    --state_->waiting;
    if (state_->over || !ready()) return std::nullopt;
    Event event;
    if (state_->events.empty()) {
      event.kind = Event::Kind::cancelled;
      event.status = Status(Code::cancelled, "the caller left");
    } else {
      event = std::move(state_->events.front());
      state_->events.pop_front();
    }
    state_->over = event.terminal();
    return event;
  }
  void cancel() override {
    const std::lock_guard<std::mutex> lock(state_->lock);
    state_->cancelled = true;
    state_->changed.notify_all();
  }
  bool over() const override {
    const std::lock_guard<std::mutex> lock(state_->lock);
    return state_->over;
  }
  int event_fd() const override { return descriptor_; }

 private:
  std::shared_ptr<State> state_;
  int descriptor_ = eventfd(0, EFD_CLOEXEC);
};

class FakeHost final : public Host {
 public:
  // Outlives the host.
  struct State {
    std::mutex lock;
    std::condition_variable changed;
    std::vector<std::string> calls;     // "unload chat", …; "destroyed" last
    Status answer = {};                 // of every call that can fail
    std::function<void()> before = {};  // runs at the begin of every call; may throw
    ModelSpec spec = {};
    CacheConfig cache = {};
    UnloadOptions unload = {};
    SubmitRequest request = {};
    std::optional<std::string> salt;
    HostStats stats = {};
    std::vector<LedgerRow> ledger = {};
    std::shared_ptr<FakeStream::State> stream = std::make_shared<FakeStream::State>();
    bool drained = false;
    bool load_waits = false;  // load() returns only once drained
    int loading = 0;
  };

  explicit FakeHost(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~FakeHost() override { static_cast<void>(note("destroyed")); }

  Status add(const ModelSpec& spec) override {
    state_->spec = spec;
    return note("add " + spec.name);
  }
  Status load(const ModelSpec& spec) override {
    state_->spec = spec;
    return note("load new " + spec.name);
  }
  Status load(std::string_view name) override {
    if (state_->load_waits) {
      std::unique_lock<std::mutex> lock(state_->lock);
      ++state_->loading;
      state_->changed.notify_all();
      state_->changed.wait(lock, [&] { return state_->drained; });
      return Status(Code::closed, "the host ends");
    }
    return note("load " + std::string(name));
  }
  Status unload(const std::string& name, const UnloadOptions& options) override {
    state_->unload = options;
    return note("unload " + name);
  }
  Status remove(const std::string& name, const UnloadOptions& options) override {
    state_->unload = options;
    return note("remove " + name);
  }
  Status reconfigure(const std::string& name, const CacheConfig& cache) override {
    state_->cache = cache;
    return note("reconfigure " + name);
  }
  Status pin(const std::string& name, bool on) override {
    return note((on ? "pin " : "unpin ") + name);
  }
  Result<std::unique_ptr<Stream>> submit(const SubmitRequest& request) override {
    state_->request = request;
    if (Status status = note("submit " + request.model); !status.ok()) return status;
    return Result<std::unique_ptr<Stream>>(std::make_unique<FakeStream>(state_->stream));
  }
  Result<std::size_t> clear_cache(const std::string& name,
                                  const std::optional<std::string>& salt) override {
    state_->salt = salt;
    if (Status status = note("clear " + name); !status.ok()) return status;
    return std::size_t{4096};
  }
  Status flush_cache(double) override { return note("flush"); }
  HostStats stats() const override { return state_->stats; }
  std::vector<LedgerRow> ledger() const override { return state_->ledger; }
  Status drain(double) override {
    Status status = note("drain");
    const std::lock_guard<std::mutex> lock(state_->lock);
    state_->drained = true;
    state_->changed.notify_all();
    return status;
  }

 private:
  Status note(const std::string& call) {
    if (state_->before && call != "destroyed") state_->before();
    const std::lock_guard<std::mutex> lock(state_->lock);
    state_->calls.push_back(call);
    return state_->answer;
  }

  std::shared_ptr<State> state_;
};

}  // namespace drafthouse::capi
