#include "host/fork_guard.h"

#include "base/forked.h"

namespace drafthouse {
namespace {

Status closed() { return Status(Code::closed, std::string(kForked)); }

class GuardedStream final : public Stream {
 public:
  explicit GuardedStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~GuardedStream() override {
    if (forked()) static_cast<void>(stream_.release());
  }

  std::optional<Event> next(double timeout_s) override {
    if (forked()) return std::nullopt;
    return stream_->next(timeout_s);
  }
  void cancel() override {
    if (!forked()) stream_->cancel();
  }
  bool over() const override { return forked() || stream_->over(); }
  int event_fd() const override { return forked() ? -1 : stream_->event_fd(); }

 private:
  std::unique_ptr<Stream> stream_;
};

class GuardedHost final : public Host {
 public:
  explicit GuardedHost(std::unique_ptr<Host> host) : host_(std::move(host)) {}
  ~GuardedHost() override {
    if (forked()) static_cast<void>(host_.release());
  }

  Status add(const ModelSpec& spec) override { return forked() ? closed() : host_->add(spec); }
  Status load(const ModelSpec& spec) override { return forked() ? closed() : host_->load(spec); }
  Status load(std::string_view name) override { return forked() ? closed() : host_->load(name); }
  Status unload(const std::string& name, const UnloadOptions& options) override {
    return forked() ? closed() : host_->unload(name, options);
  }
  Status remove(const std::string& name, const UnloadOptions& options) override {
    return forked() ? closed() : host_->remove(name, options);
  }
  Status reconfigure(const std::string& name, const CacheConfig& cache) override {
    return forked() ? closed() : host_->reconfigure(name, cache);
  }
  Status pin(const std::string& name, bool on) override {
    return forked() ? closed() : host_->pin(name, on);
  }

  Result<std::unique_ptr<Stream>> submit(const SubmitRequest& request) override {
    if (forked()) return closed();
    Result<std::unique_ptr<Stream>> stream = host_->submit(request);
    if (!stream.ok()) return stream;
    return Result<std::unique_ptr<Stream>>(
        std::make_unique<GuardedStream>(std::move(stream).value()));
  }

  Result<std::size_t> clear_cache(const std::string& name,
                                  const std::optional<std::string>& salt) override {
    if (forked()) return closed();
    return host_->clear_cache(name, salt);
  }
  Status flush_cache(double deadline_s) override {
    return forked() ? closed() : host_->flush_cache(deadline_s);
  }
  HostStats stats() const override { return forked() ? HostStats() : host_->stats(); }
  std::vector<LedgerRow> ledger() const override {
    return forked() ? std::vector<LedgerRow>() : host_->ledger();
  }
  Status drain(double deadline_s) override {
    return forked() ? closed() : host_->drain(deadline_s);
  }

 private:
  std::unique_ptr<Host> host_;
};

}  // namespace

std::unique_ptr<Host> guard_against_forks(std::unique_ptr<Host> host) {
  watch_forks();
  return std::make_unique<GuardedHost>(std::move(host));
}

}  // namespace drafthouse
