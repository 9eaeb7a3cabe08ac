#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <mutex>

#include "base/units.h"
#include "sampling/sampler.h"

namespace drafthouse {
namespace {

// Rows of a chunk before its speed is known, while somebody waits for a step.
constexpr std::uint32_t kFirstChunkRows = 64;
constexpr std::uint32_t kChunkRowsMin = 16;
// Room for an answer that admission counts on.
constexpr std::uint32_t kAnswerRoom = 64;
// A run whose events nobody takes for so long gives its place to one that waits.
constexpr double kUnreadSeconds = 1.0;

// Seconds of a plain step beside this text: what its own plain turns took when there were a few,
// else the policy's estimate. No turn is faster than a plain step, so their mean is an upper bound.
double plain_step_seconds(std::vector<double>& plain_turns, double estimate,
                          const GenerateResult& result) {
  if (result.accepted_per_turn.empty()) return 0;
  if (plain_turns.size() >= 8) {
    const auto middle = plain_turns.begin() + static_cast<std::ptrdiff_t>(plain_turns.size() / 2);
    std::nth_element(plain_turns.begin(), middle, plain_turns.end());
    estimate = *middle;
  }
  return std::min(estimate,
                  result.timings.decode_s / static_cast<double>(result.accepted_per_turn.size()));
}

std::uint32_t whole_pages(std::size_t positions) {
  return static_cast<std::uint32_t>(positions / kPageTokens);
}

}  // namespace

SchedulerCounters& SchedulerCounters::operator+=(const SchedulerCounters& other) {
  tasks += other.tasks;
  finished += other.finished;
  cancelled += other.cancelled;
  failed += other.failed;
  preempted += other.preempted;
  steps += other.steps;
  turns += other.turns;
  gained_ids += other.gained_ids;
  generated_ids += other.generated_ids;
  prompt_ids += other.prompt_ids;
  computed_prompt_ids += other.computed_prompt_ids;
  checkpoints_skipped += other.checkpoints_skipped;
  return *this;
}

struct Scheduler::Answers {
  std::vector<GenerateResult> results;  // by choice
  std::vector<Status> statuses;
  std::uint32_t left = 0;               // not ended yet
  std::uint32_t waiting = 0;            // not begun yet, behind the first
  bool prompt_read = false;             // or the first answer has ended without
  std::optional<Sequence> prompt;       // its state, while somebody waits for it
};

struct Scheduler::Run {
  enum class State : std::uint8_t { queued, restoring, prefilling, decoding };

  // Only the first answer uses the cache: the others begin with its state.
  Run(std::shared_ptr<Task> of, std::uint32_t which, Answer limits)
      : task(std::move(of)),
        choice(which),
        flow(which == 0 && !task->request.prompt_logprobs ? task->cache : nullptr, task->salt),
        answer(std::move(limits)) {}

  bool waits() const { return choice > 0 && !answers->prompt_read; }

  std::shared_ptr<Task> task;
  std::uint32_t choice;
  std::shared_ptr<Answers> answers = {};  // null: this is the only one
  State state = State::queued;
  PrefixFlow flow;
  CacheHit hit;
  Answer answer;
  std::optional<Sampler> sampler;  // absent: the most likely ids
  std::optional<Sequence> sequence;
  std::optional<WidthPolicy> policy;
  GenerateResult result;
  // What is prefilled: the request's prompt, and after a preemption the answer so far.
  std::vector<std::uint32_t> prompt;
  std::vector<double> plain_turns;
  std::uint32_t published_pages = 0;
  bool drafts = false;
  bool told = false;  // started() was called
  std::uint64_t id = 0;
  double submitted_s = 0;
  double admitted_s = 0;   // first; 0: not yet
  double restoring_s = 0;  // since when its hit is read
  double prefilled_s = 0;
  double paused_s = 0;  // since when nobody takes its events; 0: not paused
};

// A hit on its way through the background.
struct Scheduler::Restore {
  std::uint64_t run = 0;
  CacheHit hit;
};

struct Scheduler::Restored {
  std::mutex lock;
  std::vector<std::shared_ptr<Restore>> jobs;
};

Scheduler::Scheduler(SchedulerParts parts, SchedulerLimits limits)
    : parts_(std::move(parts)), limits_(limits), restored_(std::make_shared<Restored>()) {
  if (parts_.costs != nullptr) chooser_.emplace(*parts_.costs, parts_.runner->block_size());
}

Scheduler::~Scheduler() { end_all(Status(Code::closed, "the engine has gone")); }

Status Scheduler::check(const GenerateRequest& request) const {
  return check_request(request, request_limits());
}

Status Scheduler::prepare(Task& task) const {
  if (Status s = check(task.request); !s.ok()) return s;
  if (task.request.grammar.form == GrammarForm::none) return {};
  if (parts_.grammars == nullptr) {
    return Status(Code::unsupported, "grammars are not supported here");
  }
  while (task.constraints.size() < task.request.n) {
    Result<std::shared_ptr<Constraint>> made = parts_.grammars->compile(task.request.grammar);
    if (!made.ok()) return made.status();
    task.constraints.push_back(std::move(made).value());
  }
  return {};
}

RequestLimits Scheduler::request_limits() const {
  return {.vocab_size = parts_.vocab_size,
          .choices = parts_.runner->limits().choices,
          .context = parts_.runner->limits().context,
          .block_size = parts_.costs != nullptr ? parts_.runner->block_size() : 0,
          .eos_ids = parts_.eos_ids};
}

Status Scheduler::submit(std::shared_ptr<Task> task) {
  const GenerateRequest& request = task->request;
  if (Status s = prepare(*task); !s.ok()) return s;
  if (queued_.size() + request.n > limits_.queue) {
    return Status(Code::busy,
                  fmt::format("{} requests wait already; try again later", queued_.size()));
  }
  std::shared_ptr<Answers> answers;
  if (request.n > 1) {
    answers = std::make_shared<Answers>();
    answers->results.resize(request.n);
    answers->statuses.resize(request.n);
    answers->left = request.n;
    answers->waiting = request.n - 1;
  }
  counters_.prompt_ids += request.prompt_ids.size();
  const int priority = task->priority;
  const auto place = std::find_if(queued_.begin(), queued_.end(), [priority](const auto& other) {
    return other->task->priority < priority;
  });
  std::optional<std::uint64_t> seed;
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    std::unique_ptr<Run> run = make_run(task, choice);
    run->answers = answers;
    run->id = ++counters_.tasks;
    if (std::optional<SamplerJob> job = sampler_job(request, request_limits())) {
      // One seed for all of them, drawn or given.
      if (seed.has_value()) job->seed = *seed;
      seed = job->seed;
      job->choice = choice;
      if (!task->constraints.empty()) job->constraint = task->constraints[choice];
      job->prompt_logprobs = job->prompt_logprobs && choice == 0;
      run->sampler.emplace(*std::move(job));
      if (run->sampler->draws()) run->result.seed = run->sampler->seed();
    }
    queued_.insert(place, std::move(run));
  }
  return {};
}

std::unique_ptr<Scheduler::Run> Scheduler::make_run(const std::shared_ptr<Task>& task,
                                                    std::uint32_t choice) const {
  const GenerateRequest& request = task->request;
  const std::size_t room = parts_.runner->limits().context - request.prompt_ids.size();
  Answer answer(
      parts_.tokenizer,
      {.ids = request.max_tokens == 0 ? room : std::min<std::size_t>(request.max_tokens, room),
       .end_ids = end_ids(request, parts_.eos_ids),
       .stop = request.stop});
  auto run = std::make_unique<Run>(task, choice, std::move(answer));
  run->prompt = request.prompt_ids;
  run->result.prompt_tokens = static_cast<std::uint32_t>(run->prompt.size());
  run->drafts = parts_.costs != nullptr && request.width != 1;
  run->result.mode = run->drafts ? "dflash" : "plain";
  if (!run->drafts) run->result.reason = parts_.costs == nullptr ? "no draft" : "width";
  run->told = choice > 0;
  run->submitted_s = parts_.clock->now_s();
  return run;
}

bool Scheduler::expired(const Run& run, double now) const {
  return run.task->deadline_s != 0 && now >= run.task->deadline_s;
}

void Scheduler::finish(Runs& runs, Runs::iterator place, const Status& status) {
  Run& run = **place;
  GenerateResult& result = run.result;
  const double now = parts_.clock->now_s();
  if (!run.answer.finished()) {
    const std::string piece =
        run.answer.end(status.code() == Code::cancelled ? "cancelled" : "error");
    if (!piece.empty()) {
      result.text += piece;
      run.task->events->tokens(piece, {}, run.choice);
    }
  }
  if (run.state == Run::State::decoding) result.timings.decode_s = now - run.prefilled_s;
  if (run.admitted_s == 0) result.timings.queue_s = now - run.submitted_s;
  result.ids = run.answer.ids();
  result.finish_reason = run.answer.finish_reason();
  if (run.policy.has_value()) {
    result.plain_step_s = plain_step_seconds(run.plain_turns, run.policy->plain_step_s(), result);
    if (run.task->request.width == 0) result.policy = run.policy->explain();
  }
  result.cache.stored_pages = run.flow.stored_pages();
  if (status.ok()) {
    ++counters_.finished;
  } else {
    ++(status.code() == Code::cancelled ? counters_.cancelled : counters_.failed);
  }
  const std::shared_ptr<Task> task = run.task;
  const std::shared_ptr<Answers> answers = run.answers;
  if (run.sampler.has_value()) result.prompt_logprobs = run.sampler->take_prompt_logprobs();
  if (answers != nullptr) {
    answers->results[run.choice] = std::move(result);
    answers->statuses[run.choice] = status;
    if (run.choice == 0) answers->prompt_read = true;
    --answers->left;
  }
  GenerateResult whole = std::move(result);
  // Pages and the flow go before the end is told, so that whoever hears of it finds nothing held.
  if (&runs == &running_) blocked_ = false;
  runs.erase(place);
  if (answers == nullptr) {
    task->events->ended(status, std::move(whole));
  } else if (answers->left == 0) {
    finish_all(*task, *answers);
  }
}

void Scheduler::finish_all(Task& task, Answers& answers) {
  GenerateResult first = std::move(answers.results[0]);
  first.more.assign(std::make_move_iterator(answers.results.begin() + 1),
                    std::make_move_iterator(answers.results.end()));
  const auto failed = std::find_if(answers.statuses.begin(), answers.statuses.end(),
                                   [](const Status& status) { return !status.ok(); });
  task.events->ended(failed == answers.statuses.end() ? Status() : *failed, std::move(first));
}

void Scheduler::end_all(const Status& status) {
  for (Runs* runs : {&queued_, &running_}) {
    for (auto place = runs->begin(); place != runs->end();) {
      const auto current = place++;
      finish(*runs, current, status);
    }
  }
}

void Scheduler::sweep() {
  const double now = parts_.clock->now_s();
  for (Runs* runs : {&queued_, &running_}) {
    for (auto place = runs->begin(); place != runs->end();) {
      const auto current = place++;
      Run& run = **current;
      if (run.task->cancelled.load(std::memory_order_acquire)) {
        finish(*runs, current, Status(Code::cancelled, "the request was cancelled"));
      } else if (expired(run, now)) {
        finish(*runs, current, Status(Code::cancelled, "the request's deadline has passed"));
      } else if (run.paused_s != 0 && !run.task->events->ready()) {
        if (now - run.paused_s < limits_.pause_s) continue;
        finish(*runs, current,
               Status(Code::busy, fmt::format("nobody took the request's events for {:.0f} s",
                                              limits_.pause_s)));
      } else {
        run.paused_s = 0;
      }
    }
  }
}

bool Scheduler::fits(const Run& run) const {
  if (parts_.pages == nullptr) return true;
  const MemoryBudget* budget = parts_.pages->ledger().budget();
  if (budget == nullptr || budget->limit() == 0) return true;
  const std::size_t pages = whole_pages(run.prompt.size() + kAnswerRoom) + 1;
  std::size_t needed = 0;
  for (const GroupLayout& group : parts_.pages->layout().groups) {
    // What has left the reach of the next chunk is given back, a page later.
    const std::size_t seen = group.reach + parts_.runner->limits().prefill_chunk;
    std::size_t kept = group.reach == 0 ? pages : whole_pages(seen) + 3;
    // A pass makes states in two buffers in turn, from the one before it, and rings in one.
    if (group.kind == GroupKind::recurrent) kept = 3;
    if (group.kind == GroupKind::ring) kept = 2;
    needed += std::min(pages, kept) * group.page_bytes;
  }
  const std::size_t used = budget->used();
  const std::size_t free = budget->limit() > used ? budget->limit() - used : 0;
  const std::size_t cached = run.task->cache != nullptr ? run.task->cache->ram_bytes() : 0;
  return needed <= free + cached;
}

void Scheduler::admit() {
  for (;;) {
    // One that gave its place away because nobody read its events comes back when somebody does.
    const auto next = std::find_if(queued_.begin(), queued_.end(), [](const auto& run) {
      return !run->waits() && run->paused_s == 0;
    });
    if (next == queued_.end()) return;
    if (running_.size() >= parts_.runner->limits().sequences && !displace_unread()) return;
    if (!running_.empty() && (blocked_ || !fits(**next))) return;
    running_.splice(running_.end(), queued_, next);
    const auto place = std::prev(running_.end());
    if (Status s = begin(**place); !s.ok()) finish(running_, place, s);
  }
}

bool Scheduler::displace_unread() {
  const double now = parts_.clock->now_s();
  const auto unread = std::find_if(running_.begin(), running_.end(), [&](const auto& run) {
    return run->state == Run::State::decoding && run->paused_s != 0 &&
           now - run->paused_s >= kUnreadSeconds;
  });
  if (unread == running_.end()) return false;
  give_up_sequence(**unread);
  queued_.splice(queued_.end(), running_, unread);
  return true;
}

Status Scheduler::begin(Run& run) {
  const double now = parts_.clock->now_s();
  if (run.admitted_s == 0) {
    run.admitted_s = now;
    run.result.timings.queue_s = now - run.submitted_s;
  }
  if (begin_forked(run)) return {};
  Result<Sequence> sequence = parts_.runner->start(run.drafts);
  if (!sequence.ok()) return sequence.status();
  run.sequence.emplace(std::move(sequence).value());
  if (run.sampler.has_value()) run.sequence->sampler = &*run.sampler;
  if (run.drafts && !run.policy.has_value()) {
    run.policy.emplace(*parts_.costs, parts_.runner->block_size());
  }
  run.published_pages = 0;
  run.hit = run.flow.begin(run.prompt, run.drafts);
  if (run.hit.on_disk != nullptr) {
    run.state = Run::State::restoring;
    run.restoring_s = now;
    auto job = std::make_shared<Restore>(Restore{run.id, std::move(run.hit)});
    auto work = [job, back = restored_, cache = run.task->cache, wake = parts_.wake] {
      cache->restore(job->hit);
      {
        const std::lock_guard<std::mutex> lock(back->lock);
        back->jobs.push_back(job);
      }
      if (wake) wake();
    };
    if (parts_.background) {
      parts_.background(std::move(work));
    } else {
      work();
    }
    return {};
  }
  resume(run);
  return {};
}

bool Scheduler::begin_forked(Run& run) {
  if (run.choice == 0 || !run.answer.ids().empty()) return false;
  Answers& answers = *run.answers;
  const bool last = answers.waiting > 0 && --answers.waiting == 0;
  if (!answers.prompt.has_value()) return false;
  Result<Sequence> forked =
      parts_.runner->fork(*answers.prompt, static_cast<std::uint32_t>(run.prompt.size()));
  if (last) answers.prompt.reset();
  // Without room it begins like any other, and waits for pages where it needs them.
  if (!forked.ok()) return false;
  run.sequence.emplace(std::move(forked).value());
  if (run.sampler.has_value()) run.sequence->sampler = &*run.sampler;
  if (run.drafts) run.policy.emplace(*parts_.costs, parts_.runner->block_size());
  run.result.cache.tier = "none";
  run.result.cache.reason = "the first answer's prompt";
  run.state = Run::State::decoding;
  run.prefilled_s = parts_.clock->now_s();
  return true;
}

void Scheduler::share_prompt(Run& run) {
  if (run.answers == nullptr || run.choice != 0 || run.answers->prompt_read) return;
  run.answers->prompt_read = true;
  // After a preemption the sequence holds more than the prompt, and one id leaves nothing to share.
  if (run.answers->waiting == 0 || !run.answer.ids().empty() || run.prompt.size() < 2) return;
  Result<Sequence> prompt =
      parts_.runner->fork(*run.sequence, static_cast<std::uint32_t>(run.prompt.size()));
  if (!prompt.ok()) return;
  // The first id behind the prompt, so that it can be forked from again.
  prompt.value().ids.push_back(run.sequence->ids.back());
  run.answers->prompt.emplace(std::move(prompt).value());
}

void Scheduler::resume(Run& run) {
  const double now = parts_.clock->now_s();
  if (run.state == Run::State::restoring) run.result.timings.restore_s += now - run.restoring_s;
  if (run.hit.tokens > 0) {
    parts_.runner->adopt(*run.sequence, run.hit.tokens, run.hit.pages);
    run.published_pages = whole_pages(run.hit.tokens);
  }
  counters_.computed_prompt_ids += run.prompt.size() - run.hit.tokens;
  if (run.flow.caching()) {
    // Where this prompt left what others had, and the most that the same prompt could use again.
    const std::uint32_t known = whole_pages(run.hit.known_tokens);
    const std::uint32_t again = whole_pages(run.prompt.size() - 1);
    run.sequence->target.want_checkpoints(
        std::max(1u, run.task->cache->config().snapshot_tokens / kPageTokens), {known, again});
  }
  if (!run.told) {
    CacheReport& report = run.result.cache;
    report.matched_tokens = run.hit.tokens;
    report.tier = name_of(run.hit.tier);
    report.reason = run.hit.reason;
    run.told = true;
    run.task->events->started(report);
  }
  run.hit.pages.clear();
  run.state = Run::State::prefilling;
}

void Scheduler::take_restored() {
  std::vector<std::shared_ptr<Restore>> back;
  {
    const std::lock_guard<std::mutex> lock(restored_->lock);
    back.swap(restored_->jobs);
  }
  for (const std::shared_ptr<Restore>& job : back) {
    // A run that ended meanwhile is not there any more.
    const auto place = std::find_if(running_.begin(), running_.end(),
                                    [&job](const auto& run) { return run->id == job->run; });
    if (place == running_.end()) continue;
    (*place)->hit = std::move(job->hit);
    resume(**place);
  }
}

Scheduler::Run* Scheduler::prefill_candidate() {
  Run* best = nullptr;
  for (const auto& run : running_) {
    if (run->state != Run::State::prefilling) continue;
    if (best == nullptr || run->task->priority > best->task->priority) best = run.get();
  }
  return best;
}

bool Scheduler::streaming() const {
  return std::any_of(running_.begin(), running_.end(), [](const auto& run) {
    return run->state == Run::State::decoding && run->paused_s == 0;
  });
}

Scheduler::Work Scheduler::next() {
  // Acquires: whoever has set it has marked a task before.
  (void)interrupt_.exchange(false, std::memory_order_acq_rel);
  take_restored();
  sweep();
  admit();
  // Those that were restored in place.
  take_restored();
  // A step may have filled a client's queue.
  for (const auto& run : running_) {
    if (run->state != Run::State::decoding || run->paused_s != 0) continue;
    if (!run->task->events->ready()) run->paused_s = parts_.clock->now_s();
  }
  const bool decodes = streaming();
  const bool prefills = prefill_candidate() != nullptr;
  if (prefills && (!decodes || !chunk_last_)) return Work::chunk;
  return decodes ? Work::step : Work::none;
}

void Scheduler::run(Work work) {
  chunk_last_ = work == Work::chunk;
  if (work == Work::step) step();
  if (work == Work::chunk) chunk();
}

std::uint32_t Scheduler::chunk_rows() const {
  const std::uint32_t most = parts_.runner->limits().prefill_chunk;
  if (row_s_ <= 0) return streaming() ? std::min(kFirstChunkRows, most) : most;
  const double rows = limits_.chunk_s / row_s_;
  if (rows >= most) return most;
  const auto whole = static_cast<std::uint32_t>(rows) / kChunkRowsMin * kChunkRowsMin;
  return std::clamp(whole, std::min(kChunkRowsMin, most), most);
}

void Scheduler::chunk() {
  Run& run = *prefill_candidate();
  const auto place = std::find_if(running_.begin(), running_.end(),
                                  [&run](const auto& each) { return each.get() == &run; });
  const double start = parts_.clock->now_s();
  const std::uint32_t before = run.sequence->target.length();
  const Result<bool> done =
      parts_.runner->prefill_chunk(*run.sequence, run.prompt, chunk_rows(), flag(run));
  const double now = parts_.clock->now_s();
  if (!done.ok()) {
    if (done.status().code() == Code::cancelled) {
      interrupted(run);
    } else if (done.status().code() == Code::no_memory && running_.size() > 1) {
      preempt(place);
    } else {
      finish(running_, place, done.status());
    }
    return;
  }
  const std::uint32_t rows = run.sequence->target.length() - before;
  if (rows > 0) {
    const double each = (now - start) / rows;
    row_s_ = row_s_ <= 0 ? each : 0.5 * (row_s_ + each);
  }
  run.result.timings.prefill_s += now - start;
  publish(run, done.value());
  if (!done.value()) return;
  share_prompt(run);
  run.state = Run::State::decoding;
  run.prefilled_s = now - run.result.timings.decode_s;
  const std::uint32_t first = run.sequence->ids.back();
  give(place, {&first, 1});
}

void Scheduler::step() {
  jobs_.clear();
  stepping_.clear();
  widths_.clear();
  for (auto place = running_.begin(); place != running_.end(); ++place) {
    Run& run = **place;
    if (run.state != Run::State::decoding || run.paused_s != 0) continue;
    if (jobs_.size() == parts_.runner->limits().sequences) break;
    jobs_.push_back(TurnJob{.sequence = &*run.sequence, .width = 1});
    stepping_.push_back(place);
    WidthChoice choice;
    choice.room = static_cast<std::uint32_t>(
        std::min<std::size_t>(run.answer.left(), std::numeric_limits<std::uint32_t>::max()));
    if (run.drafts && run.task->request.width != 0) choice.width = run.task->request.width;
    if (run.drafts && run.task->request.width == 0) choice.policy = &*run.policy;
    widths_.push_back(choice);
  }
  if (jobs_.empty()) return;
  if (chooser_.has_value()) chooser_->choose(widths_);
  BatchShape shape{0, 0, 0};
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    jobs_[i].width = widths_[i].width;
  }
  const double start = parts_.clock->now_s();
  const Status status =
      parts_.runner->take_turns(jobs_, jobs_.size() == 1 ? flag(**stepping_.front()) : &interrupt_);
  if (!status.ok()) {
    if (jobs_.size() == 1) interrupted(**stepping_.front());
    return;
  }
  const double seconds = parts_.clock->now_s() - start;
  bool gave_pages = false;
  ++counters_.steps;
  for (const TurnJob& job : jobs_) {
    if (!job.status.ok()) continue;
    ++shape.sequences;
    shape.rows += job.outcome.width;
    if (job.outcome.width > 1) ++shape.drafting;
  }
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const TurnJob& job = jobs_[i];
    Run& run = **stepping_[i];
    if (!job.status.ok()) {
      if (job.status.code() != Code::no_memory) {
        finish(running_, stepping_[i], job.status);
      } else if (gave_pages) {
        // Another one has just given its pages back: tried again in the next step.
      } else if (running_.size() > 1) {
        preempt(stepping_[i]);
        gave_pages = true;
      } else {
        finish(running_, stepping_[i], job.status);
      }
      continue;
    }
    const TurnOutcome& outcome = job.outcome;
    if (run.policy.has_value()) {
      run.policy->observe(outcome.width, outcome.gained, seconds, shape);
      if (outcome.width == 1 && jobs_.size() == 1) run.plain_turns.push_back(seconds);
    }
    ++counters_.turns;
    counters_.gained_ids += outcome.gained;
    run.result.timings.draft_s += outcome.draft_s;
    run.result.timings.verify_s += outcome.verify_s;
    run.result.accepted_per_turn.push_back(outcome.gained);
    run.result.width_per_turn.push_back(outcome.width);
    give(stepping_[i], std::span<const std::uint32_t>(run.sequence->ids).last(outcome.gained));
  }
}

const std::atomic<bool>* Scheduler::flag(const Run& run) const {
  // A caller's own flag, which a signal handler may set, serves where the pass is all its own.
  return run.task->request.cancel != nullptr ? run.task->request.cancel : &interrupt_;
}

void Scheduler::interrupted(Run& run) {
  const std::atomic<bool>* own = run.task->request.cancel;
  if (own != nullptr && own->load()) run.task->cancelled.store(true, std::memory_order_release);
}

void Scheduler::give(Runs::iterator place, std::span<const std::uint32_t> ids) {
  Run& run = **place;
  const std::size_t before = run.answer.ids().size();
  const std::string piece = run.answer.take(ids);
  const std::size_t taken = run.answer.ids().size() - before;
  counters_.generated_ids += taken;
  if (run.task->request.logprobs) {
    std::vector<TokenLogprob> logprobs = run.sampler->take_logprobs();
    logprobs.resize(taken);
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(run.result.logprobs));
  }
  run.result.text += piece;
  run.task->events->tokens(piece, std::span<const std::uint32_t>(run.answer.ids()).subspan(before),
                           run.choice);
  if (!run.answer.finished()) {
    const std::uint32_t pages = whole_pages(run.sequence->target.length());
    if (run.task->cache != nullptr && pages > run.published_pages &&
        (pages - run.published_pages) * kPageTokens >= run.task->cache->config().snapshot_tokens) {
      publish(run, true);
    }
    return;
  }
  // What was accepted behind the end is not part of the text, nor of what is stored.
  parts_.runner->truncate(
      *run.sequence, static_cast<std::uint32_t>(run.sequence->ids.size() - (ids.size() - taken)));
  publish(run, true);
  finish(running_, place, {});
}

void Scheduler::publish(Run& run, bool durable) {
  if (!run.flow.caching()) return;
  Sequence& sequence = *run.sequence;
  // Without the draft's context a later request would still hit, with a shorter one.
  if (durable && sequence.drafts()) (void)parts_.runner->settle(sequence);
  const std::uint32_t pages = whole_pages(sequence.target.length());
  if (pages == 0 || (pages <= run.published_pages && !durable)) return;
  PrefixPages shared;
  for (std::uint32_t group = 0; group < sequence.target.groups(); ++group) {
    shared.emplace_back();
    const GroupKind kind = run.flow.manager()->spec().layout.groups[group].kind;
    for (std::uint32_t p = 0; p < pages; ++p) {
      // States are large: of those at hand only the checkpoints, and the one that a snapshot needs.
      const bool wanted = kind != GroupKind::recurrent || sequence.target.is_checkpoint(p) ||
                          (durable && p + 1 == pages);
      shared.back().push_back(wanted ? sequence.target.share(group, p) : PageRef());
    }
  }
  const std::size_t groups = run.flow.manager()->spec().layout.groups.size();
  const std::uint32_t drafted = sequence.drafts() ? whole_pages(sequence.draft->length()) : 0;
  for (std::uint32_t group = 0; shared.size() < groups; ++group) {
    shared.emplace_back(pages);
    for (std::uint32_t p = 0; p < std::min(drafted, pages); ++p) {
      shared.back()[p] = sequence.draft->share(group, p);
    }
  }
  const std::vector<std::uint32_t>& text = sequence.ids.empty() ? run.prompt : sequence.ids;
  const std::size_t tokens = std::min<std::size_t>(text.size(), sequence.target.length());
  run.flow.publish(std::span<const std::uint32_t>(text).first(tokens), shared, durable);
  counters_.checkpoints_skipped += sequence.target.release_checkpoints();
  run.published_pages = pages;
}

void Scheduler::give_up_sequence(Run& run) {
  ++counters_.preempted;
  if (run.state == Run::State::decoding) {
    run.result.timings.decode_s = parts_.clock->now_s() - run.prefilled_s;
  }
  run.prompt = run.task->request.prompt_ids;
  run.prompt.insert(run.prompt.end(), run.answer.ids().begin(), run.answer.ids().end());
  run.sequence.reset();
  run.hit = {};
  run.state = Run::State::queued;
}

void Scheduler::preempt(Runs::iterator place) {
  give_up_sequence(**place);
  // Before everybody of its priority, but behind those that run.
  const int priority = (*place)->task->priority;
  const auto before = std::find_if(queued_.begin(), queued_.end(), [priority](const auto& other) {
    return other->task->priority <= priority;
  });
  queued_.splice(before, running_, place);
  blocked_ = true;
}

double Scheduler::next_deadline() const {
  double first = std::numeric_limits<double>::infinity();
  const bool wanted = running_.size() >= parts_.runner->limits().sequences &&
                      std::any_of(queued_.begin(), queued_.end(),
                                  [](const auto& run) { return !run->waits() && run->paused_s == 0; });
  for (const Runs* runs : {&queued_, &running_}) {
    for (const auto& run : *runs) {
      if (run->task->deadline_s != 0) first = std::min(first, run->task->deadline_s);
      if (run->paused_s == 0) continue;
      first = std::min(first, run->paused_s + limits_.pause_s);
      if (wanted && runs == &running_) first = std::min(first, run->paused_s + kUnreadSeconds);
    }
  }
  return first;
}

}  // namespace drafthouse
