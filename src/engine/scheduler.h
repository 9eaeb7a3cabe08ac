#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "cache/prefix_flow.h"
#include "engine/answer.h"
#include "engine/grammar_compiler.h"
#include "engine/request_check.h"
#include "engine/task.h"
#include "text/tokenizer.h"
#include "turn/sequence_runner.h"
#include "turn/width_policy.h"

namespace drafthouse {

struct SchedulerLimits {
  std::uint32_t queue = 64;  // tasks that wait; more are refused with busy
  double chunk_s = 0.2;      // a prefill chunk aims at less than this
  double pause_s = 30.0;     // a task whose events nobody takes fails after this
};

// What it needs of a loaded pair. All must outlive it.
struct SchedulerParts {
  SequenceRunner* runner = nullptr;
  const CostTable* costs = nullptr;  // null without a draft
  std::shared_ptr<const Tokenizer> tokenizer = {};
  ReplyFormat reply_format = ReplyFormat::plain;  // of requests that do not say
  std::vector<std::uint32_t> eos_ids = {};        // ascending
  std::uint32_t vocab_size = 0;
  std::shared_ptr<const GrammarCompiler> grammars = {};  // may be null: no grammar is supported
  const Clock* clock = nullptr;
  // Where pages come from, for admission; may be null.
  const PageStore* pages = nullptr;
  // Runs work on another thread, for reading from disk; empty: it happens in place.
  std::function<void(std::function<void()>)> background = {};
  // Told, on any thread, that run() may find something to do.
  std::function<void()> wake = {};
};

struct SchedulerCounters {
  std::uint64_t tasks = 0;
  std::uint64_t finished = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t preempted = 0;  // sequences that gave their pages to others and began again
  std::uint64_t steps = 0;
  std::uint64_t turns = 0;
  std::uint64_t gained_ids = 0;  // by turns
  std::uint64_t generated_ids = 0;
  std::uint64_t prompt_ids = 0;
  std::uint64_t computed_prompt_ids = 0;
  std::uint64_t checkpoints_skipped = 0;  // of recurrent layers, for want of memory

  SchedulerCounters& operator+=(const SchedulerCounters& other);
};

// The requests of one pair: who waits, who is prefilled next, which sequences share the next step.
// Decides and works when its owner says so; has no thread. Ids of a task never depend on its
// neighbours. Confined to one thread but for what says otherwise.
//
//   queued → restoring → prefilling → decoding → ended
//
// Prefill chunks alternate with steps while anything decodes. A sequence that finds no page while
// others run gives its own back, waits, and goes on by prefilling what it had (the state is the
// same to the bit).
class Scheduler {
 public:
  enum class Work : std::uint8_t { none, step, chunk };

  Scheduler(SchedulerParts parts, SchedulerLimits limits);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // invalid_argument, context_overflow or busy; then the task's events hear nothing.
  Status check(const GenerateRequest& request) const;
  // Checks the request and compiles its grammar, which may take a moment; on any thread. submit()
  // does it where it was not done before.
  Status prepare(Task& task) const;
  Status submit(std::shared_ptr<Task> task);

  // Ends what is cancelled or late, admits what fits, and says what run() would do.
  Work next();
  // Does it: one step of all sequences that decode, or one prefill chunk. Comes back early when
  // `interrupt` is set.
  void run(Work work);

  // The flag that passes look at; set it (on any thread, or in a signal handler) after setting a
  // task's own.
  std::atomic<bool>& interrupt() { return interrupt_; }
  // Ends every task with this status. Also those that come back from the background later.
  void end_all(const Status& status);

  bool idle() const { return queued_.empty() && running_.empty(); }
  // Whether a sequence decodes, that is, whether somebody waits for the next step.
  bool streaming() const;
  std::size_t queued() const { return queued_.size(); }
  std::size_t running() const { return running_.size(); }
  const SchedulerCounters& counters() const { return counters_; }
  const Clock& clock() const { return *parts_.clock; }
  // The earliest moment at which something happens by itself, on the clock; infinity: never.
  double next_deadline() const;

 private:
  struct Run;
  struct Answers;  // to one request with n > 1
  struct Restore;
  struct Restored;
  using Runs = std::list<std::unique_ptr<Run>>;

  RequestLimits request_limits() const;
  // Of one answer to the request; null: none.
  Result<std::shared_ptr<Constraint>> make_constraint(const GenerateRequest& request) const;
  void take_restored();
  void sweep();
  void admit();
  bool fits(const Run& run) const;
  Status begin(Run& run);
  void resume(Run& run);  // its hit is whole
  // Whether the run goes on from the prompt's state that the first answer left.
  bool begin_forked(Run& run);
  void share_prompt(Run& run);
  std::unique_ptr<Run> make_run(const std::shared_ptr<Task>& task, std::uint32_t choice) const;
  Run* prefill_candidate();
  std::uint32_t chunk_rows() const;
  void chunk();
  void step();
  // What the passes of this run look at.
  const std::atomic<bool>* flag(const Run& run) const;
  void interrupted(Run& run);
  void give(Runs::iterator place, std::span<const std::uint32_t> ids);
  void publish(Run& run, bool durable);
  void preempt(Runs::iterator place);
  // Drops the state of a run that will begin again.
  void give_up_sequence(Run& run);
  // Sends one whose events nobody has taken for a while behind those that wait; false: there is
  // none.
  bool displace_unread();
  void finish(Runs& runs, Runs::iterator place, const Status& status);
  // The last of a request's answers has ended.
  static void finish_all(Task& task, Answers& answers);
  bool expired(const Run& run, double now) const;

  SchedulerParts parts_;
  SchedulerLimits limits_;
  std::atomic<bool> interrupt_{false};
  Runs queued_;
  Runs running_;  // restoring, prefilling or decoding, in order of admission
  std::shared_ptr<Restored> restored_;
  std::optional<WidthChooser> chooser_;  // with a draft
  std::vector<TurnJob> jobs_;
  std::vector<WidthChoice> widths_;       // of each job
  std::vector<Runs::iterator> stepping_;  // the run of each job
  bool chunk_last_ = false;
  bool blocked_ = false;  // a sequence found no page; nobody is admitted before another one ends
  double row_s_ = 0;      // measured seconds of a prefill row
  SchedulerCounters counters_;
};

}  // namespace drafthouse
