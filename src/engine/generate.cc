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
  explicit Waiting(const GenerateRequest& request) : request_(request) {}

  void started(const CacheReport&) override {}
  void tokens(const AnswerPiece& piece, std::span<const std::uint32_t> ids,
              std::uint32_t choice) override {
    if (choice != 0) return;
    if (request_.on_tokens) request_.on_tokens(piece.text, ids);
    if (request_.on_reply && !piece.reply.empty()) request_.on_reply(piece.reply);
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
  const GenerateRequest& request_;
  Status status_;
  GenerateResult result_;
  bool over_ = false;
};

// For people; what a disk tier says and counts when it gives a snapshot up.
std::string why_dropped(const DiskTier& disk) {
  if (std::string why = disk.why_read_only(); !why.empty()) return "only read: " + why;
  const DiskCounters counters = disk.directory().counters();
  if (counters.drops_read_only > 0) return "it was only read until now";
  if (counters.drops_budget > 0 || counters.evictions > 0)
    return "the folder has reached its limit";
  if (counters.drops_free_floor > 0) return "the file system is nearly full";
  if (counters.write_errors > 0 || counters.drops_suspended > 0) return "writing failed";
  if (counters.drops_lock > 0) return "the folder's lock was not to be had in time";
  if (counters.drops_queue > 0) return "too much waited to be written";
  return "the folder cannot be used";
}

}  // namespace

SchedulerParts Engine::Internals::scheduler_parts() const {
  SchedulerParts scheduler;
  scheduler.runner = runner.get();
  scheduler.costs = costs.has_value() ? &*costs : nullptr;
  scheduler.tokenizer = tokenizer;
  scheduler.reply_format = info.reply_format;
  scheduler.eos_ids = info.eos_ids;
  scheduler.vocab_size = info.vocab_size;
  scheduler.grammars = grammars;
  scheduler.clock = &system_clock();
  scheduler.pages = pages.get();
  return scheduler;
}

Result<GenerateResult> Engine::generate(const GenerateRequest& request) {
  Scheduler scheduler(internals_->scheduler_parts(), {});
  auto events = std::make_shared<Waiting>(request);
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
  internals_->stored_text = request.prompt_ids;
  internals_->stored_text.insert(internals_->stored_text.end(), result.ids.begin(),
                                 result.ids.end());
  internals_->stored_text.resize(std::size_t{result.cache.stored_pages} * kPageTokens);
  if (!events->status().ok() && events->status().code() != Code::cancelled) return events->status();
  return result;
}

Result<Engine::Stored> Engine::flush_cache(double deadline_s) {
  Stored stored;
  const std::shared_ptr<CacheManager>& cache = internals_->cache.manager();
  if (cache == nullptr || cache->disk() == nullptr) return stored;
  if (Status s = cache->flush(deadline_s); !s.ok()) return s;
  const std::vector<std::uint32_t>& text = internals_->stored_text;
  const DiskTier::Found found = cache->disk()->find("", text);
  stored.pages = found.pages;
  if (found.pages * std::size_t{kPageTokens} < text.size()) {
    stored.why_not_more = why_dropped(*cache->disk());
  }
  return stored;
}

}  // namespace drafthouse
