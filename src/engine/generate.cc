#include <memory>
#include <utility>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "engine/scheduler.h"

namespace drafthouse {
namespace {

// The events of a request whose caller waits in generate().
class Waiting final : public TaskEvents {
 public:
  explicit Waiting(const TokenFn& on_tokens) : on_tokens_(on_tokens) {}

  void started(const CacheReport&) override {}
  void tokens(std::string_view text, std::span<const std::uint32_t> ids) override {
    if (on_tokens_) on_tokens_(text, ids);
  }
  bool ready() override { return true; }
  void ended(const Status& status, GenerateResult result) override {
    status_ = status;
    result_ = std::move(result);
    over_ = true;
  }

  bool over() const { return over_; }
  const Status& status() const { return status_; }
  GenerateResult take() { return std::move(result_); }

 private:
  const TokenFn& on_tokens_;
  Status status_;
  GenerateResult result_;
  bool over_ = false;
};

}  // namespace

SchedulerParts Engine::Internals::scheduler_parts() const {
  SchedulerParts scheduler;
  scheduler.runner = runner.get();
  scheduler.costs = costs.has_value() ? &*costs : nullptr;
  scheduler.tokenizer = tokenizer;
  scheduler.eos_ids = info.eos_ids;
  scheduler.vocab_size = info.vocab_size;
  scheduler.clock = &system_clock();
  scheduler.pages = pages.get();
  return scheduler;
}

Result<GenerateResult> Engine::generate(const GenerateRequest& request) {
  Scheduler scheduler(internals_->scheduler_parts(), {});
  auto events = std::make_shared<Waiting>(request.on_tokens);
  auto task = std::make_shared<Task>();
  task->request = request;
  task->cache = internals_->cache.manager();
  task->events = events;
  if (Status s = scheduler.submit(task); !s.ok()) return s;
  while (!events->over()) {
    if (request.cancel != nullptr && request.cancel->load()) task->cancelled = true;
    scheduler.run(scheduler.next());
  }
  GenerateResult result = events->take();
  result.timings.load_s = internals_->info.load_s;
  if (!events->status().ok() && events->status().code() != Code::cancelled) return events->status();
  return result;
}

}  // namespace drafthouse
