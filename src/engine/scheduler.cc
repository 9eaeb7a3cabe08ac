#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "engine/scheduler_run.h"

namespace drafthouse {
namespace {

// Rows of a chunk before its speed is known, while somebody waits for a step.
constexpr std::uint32_t kFirstChunkRows = 64;
constexpr std::uint32_t kChunkRowsMin = 16;

// Mean seconds of a plain step beside this text: of its own plain turns when there were a few, else
// the policy's estimate. No turn is faster than a plain step, so the mean of all is an upper bound.
double plain_step_seconds(std::uint32_t plain_turns, double plain_turns_s, double estimate,
                          const GenerateResult& result) {
  if (result.accepted_per_turn.empty()) return 0;
  if (plain_turns >= 8) estimate = plain_turns_s / plain_turns;
  return std::min(estimate,
                  result.timings.decode_s / static_cast<double>(result.accepted_per_turn.size()));
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
  while (task.constraints.size() < task.request.n) {
    Result<std::shared_ptr<Constraint>> made =
        task.constraints.empty() ? make_constraint(task.request) : task.constraints[0]->clone();
    if (!made.ok()) return made.status();
    if (made.value() == nullptr) return {};
    task.constraints.push_back(std::move(made).value());
  }
  return {};
}

Result<std::shared_ptr<Constraint>> Scheduler::make_constraint(
    const GenerateRequest& request) const {
  std::shared_ptr<Constraint> grammar;
  if (request.grammar.form != GrammarForm::none) {
    if (parts_.grammars == nullptr) {
      return Status(Code::unsupported, "grammars are not supported here");
    }
    Result<std::shared_ptr<Constraint>> made = parts_.grammars->compile(request.grammar);
    if (!made.ok()) return made;
    grammar = std::move(made).value();
  }
  Result<std::optional<ReplyRule>> rule =
      reply_rule(request, request_limits(), parts_.reply_format, parts_.tokenizer.get());
  if (!rule.ok()) return rule.status();
  if (!rule.value().has_value()) return grammar;
  return ReplyConstraint::create(parts_.tokenizer, *std::move(rule).value(), std::move(grammar));
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
       .stop = request.stop,
       .reply = reply_start(request, parts_.reply_format, parts_.tokenizer.get())});
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
    const AnswerPiece piece =
        run.answer.end(status.code() == Code::cancelled ? "cancelled" : "error");
    if (!piece.empty()) {
      run.add(piece);
      run.task->events->tokens(piece, {}, run.choice);
    }
  }
  if (run.state == Run::State::decoding) result.timings.decode_s = now - run.prefilled_s;
  if (run.admitted_s == 0) result.timings.queue_s = now - run.submitted_s;
  result.ids = run.answer.ids();
  result.finish_reason = run.answer.finish_reason();
  result.reasoning_tokens = run.answer.reasoning_ids();
  if (run.policy.has_value()) {
    result.plain_step_s =
        plain_step_seconds(run.plain_turns, run.plain_turns_s, run.policy->plain_step_s(), result);
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

void Scheduler::end_all(const Status& status) {
  for (Runs* runs : {&queued_, &running_}) {
    for (auto place = runs->begin(); place != runs->end();) {
      const auto current = place++;
      finish(*runs, current, status);
    }
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
      if (outcome.width == 1 && jobs_.size() == 1) {
        ++run.plain_turns;
        run.plain_turns_s += seconds;
      }
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
  const AnswerPiece piece = run.answer.take(ids);
  const std::size_t taken = run.answer.ids().size() - before;
  counters_.generated_ids += taken;
  if (run.task->request.logprobs) {
    std::vector<TokenLogprob> logprobs = run.sampler->take_logprobs();
    logprobs.resize(taken);
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(run.result.logprobs));
  }
  run.add(piece);
  run.task->events->tokens(piece, std::span<const std::uint32_t>(run.answer.ids()).subspan(before),
                           run.choice);
  if (!run.answer.finished()) {
    if (run.task->cache == nullptr) return;
    const std::uint32_t pages = whole_pages(run.sequence->target.length());
    const bool snapshot = pages >= run.snapshot_pages + snapshot_every(*run.task->cache);
    if (snapshot || pages >= run.published_pages + shared_every(run.task->cache->spec().layout)) {
      publish(run, snapshot);
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
  if (sequence.drafts()) (void)parts_.runner->settle(sequence);
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
  if (durable) run.snapshot_pages = pages;
}

}  // namespace drafthouse
