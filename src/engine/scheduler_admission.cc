// Who runs: ends what is late, admits what fits, begins with what the cache has, gives places away.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "engine/scheduler_run.h"

namespace drafthouse {
namespace {

// Room for an answer that admission counts on.
constexpr std::uint32_t kAnswerRoom = 64;
// A run whose events nobody takes for so long gives its place to one that waits.
constexpr double kUnreadSeconds = 1.0;

}  // namespace

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
    kept += sink_pages(group.sink);
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
  run.published_pages = run.snapshot_pages = 0;
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

void Scheduler::resume(Run& run) {
  const double now = parts_.clock->now_s();
  if (run.state == Run::State::restoring) run.result.timings.restore_s += now - run.restoring_s;
  if (run.hit.tokens > 0) {
    parts_.runner->adopt(*run.sequence, run.hit.tokens, run.hit.pages);
    run.published_pages = run.snapshot_pages = whole_pages(run.hit.tokens);
  }
  counters_.computed_prompt_ids += run.prompt.size() - run.hit.tokens;
  if (run.flow.caching()) {
    // Where this prompt left what others had, and the most that the same prompt could use again.
    const std::uint32_t known = whole_pages(run.hit.known_tokens);
    const std::uint32_t again = whole_pages(run.prompt.size() - 1);
    run.sequence->target.want_checkpoints(snapshot_every(*run.task->cache), {known, again});
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
                      std::any_of(queued_.begin(), queued_.end(), [](const auto& run) {
                        return !run->waits() && run->paused_s == 0;
                      });
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
