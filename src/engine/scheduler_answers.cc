// Several answers to one request: the first one reads the prompt, the others go on from its state.

#include <algorithm>
#include <iterator>

#include "engine/scheduler_run.h"

namespace drafthouse {

void Scheduler::finish_all(Task& task, Answers& answers) {
  GenerateResult first = std::move(answers.results[0]);
  first.more.assign(std::make_move_iterator(answers.results.begin() + 1),
                    std::make_move_iterator(answers.results.end()));
  const auto failed = std::find_if(answers.statuses.begin(), answers.statuses.end(),
                                   [](const Status& status) { return !status.ok(); });
  task.events->ended(failed == answers.statuses.end() ? Status() : *failed, std::move(first));
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

}  // namespace drafthouse
