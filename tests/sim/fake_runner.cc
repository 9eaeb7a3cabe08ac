#include "tests/sim/fake_runner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace drafthouse {
namespace {

constexpr std::uint32_t kWaitingMax = 64;

[[noreturn]] void wrong(const char* what, std::uint64_t at) {
  std::fprintf(stderr, "fake runner: %s (at %llu)\n", what, static_cast<unsigned long long>(at));
  std::abort();
}

std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 31;
  value *= 0xbf58476d1ce4e5b9u;
  value ^= value >> 29;
  return value;
}

std::uint64_t mark_of(std::uint64_t state, std::size_t group, bool draft) {
  return mixed(state + group + (draft ? 100 : 0)) | 1;
}

std::uint64_t read(const std::byte* page, std::uint32_t slot) {
  std::uint64_t value = 0;
  std::memcpy(&value, page + slot * sizeof value, sizeof value);
  return value;
}

}  // namespace

std::uint64_t FakeModel::next_state(std::uint64_t state, std::uint32_t id) const {
  return mixed(state * 31 + id + 1);
}

std::uint32_t FakeModel::choice(std::uint64_t state) const {
  return static_cast<std::uint32_t>(mixed(state) % vocab);
}

std::vector<std::uint32_t> FakeModel::answer(std::span<const std::uint32_t> prompt,
                                             std::size_t ids) const {
  std::uint64_t state = first_state();
  for (const std::uint32_t id : prompt) state = next_state(state, id);
  std::vector<std::uint32_t> all;
  while (all.size() < ids) {
    all.push_back(choice(state));
    if (all.back() == eos) break;
    state = next_state(state, all.back());
  }
  return all;
}

StateLayout fake_layout(std::size_t page_bytes, bool draft) {
  StateLayout layout{{{.page_bytes = page_bytes, .reach = 0, .draft = false},
                      {.page_bytes = page_bytes, .reach = 128, .draft = false}}};
  if (draft) layout.groups.push_back({.page_bytes = page_bytes, .reach = 0, .draft = true});
  return layout;
}

FakeRunner::FakeRunner(const FakeModel& model, const TurnLimits& limits,
                       std::shared_ptr<PageStore> pages, FakeClock& clock)
    : model_(model), limits_(limits), pages_(std::move(pages)), clock_(clock) {}

bool FakeRunner::pass(std::uint32_t count, const std::atomic<bool>* cancel) {
  ++passes;
  const double seconds = model_.pass_s + model_.row_s * count;
  for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      ++cancelled_passes;
      return false;
    }
    clock_.advance(seconds / model_.layers);
    if (on_layer) on_layer();
  }
  rows += count;
  return true;
}

Result<Sequence> FakeRunner::start(bool drafts) {
  if (drafts && model_.block <= 1) wrong("a sequence drafts without a draft", 0);
  const StateLayout& layout = pages_->layout();
  std::vector<LayerGroup> target;
  std::vector<LayerGroup> draft;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    (layout.groups[g].draft ? draft : target).push_back({pages_->pool(g), layout.groups[g].reach});
  }
  return Sequence{.ids = {},
                  .target = SequenceCache(std::move(target), limits_.context),
                  .draft = drafts ? std::optional<SequenceCache>(
                                        SequenceCache(std::move(draft), limits_.context))
                                  : std::nullopt,
                  .taps = {},
                  .taps_waiting = 0};
}

Result<Sequence> FakeRunner::fork(const Sequence& sequence, std::uint32_t count) {
  if (count < 2 || count >= sequence.ids.size() || sequence.taps_waiting != 0) {
    wrong("a fork of a sequence that has not just ended its prompt", count);
  }
  ++forks;
  Sequence forked{.ids = {sequence.ids.begin(), sequence.ids.begin() + count},
                  .target = sequence.target.fork(),
                  .draft = std::nullopt,
                  .taps = {},
                  .taps_waiting = 0};
  if (sequence.drafts()) forked.draft.emplace(sequence.draft->fork());
  forked.target.truncate(count - 1);
  if (forked.drafts() && forked.draft->length() > count - 1) forked.draft->truncate(count - 1);
  return forked;
}

std::uint64_t FakeRunner::state_at(const Sequence& sequence, std::uint32_t position) const {
  const std::byte* page = sequence.target.pages(0)[position / kPageTokens];
  if (page == nullptr) wrong("a page of full attention is missing", position);
  return read(page, position % kPageTokens);
}

// Group 0 of the target keeps the state itself, the others a mark of it.
void FakeRunner::write(SequenceCache& cache, std::uint32_t position, std::uint64_t state,
                       bool draft) {
  for (std::uint32_t g = 0; g < cache.groups(); ++g) {
    std::byte* page = cache.pages(g)[position / kPageTokens];
    if (page == nullptr) wrong("the page that is written is missing", position);
    const std::uint64_t value = g == 0 && !draft ? state : mark_of(state, g, draft);
    std::memcpy(page + (position % kPageTokens) * sizeof value, &value, sizeof value);
  }
}

void FakeRunner::check(const Sequence& sequence, std::span<const std::uint32_t> ids) const {
  const std::uint32_t length = sequence.target.length();
  const auto& groups = pages_->layout().groups;
  std::uint64_t state = model_.first_state();
  for (std::uint32_t position = 0; position < length; ++position) {
    state = model_.next_state(state, ids[position]);
    const std::uint32_t page = position / kPageTokens;
    const std::uint32_t slot = position % kPageTokens;
    for (std::uint32_t g = 0; g < sequence.target.groups(); ++g) {
      const std::byte* bytes = sequence.target.pages(g)[page];
      if (bytes == nullptr) {
        if (page >= first_page_seen(length, groups[g].reach))
          wrong("a page in reach is missing", page);
        continue;
      }
      if (read(bytes, slot) != (g == 0 ? state : mark_of(state, g, false))) {
        wrong("a page of the target belongs to another text", position);
      }
    }
    if (!sequence.drafts()) continue;
    for (std::uint32_t g = 0; g < sequence.draft->groups(); ++g) {
      const std::byte* bytes = sequence.draft->pages(g)[page];
      if (bytes != nullptr && position < sequence.draft->length() &&
          read(bytes, slot) != mark_of(state, g, true)) {
        wrong("a page of the draft belongs to another text", position);
      }
    }
  }
}

void FakeRunner::adopt(Sequence& sequence, std::uint32_t length, const PrefixPages& pages) {
  if (sequence.target.length() != 0 || length == 0 || length % kPageTokens != 0) {
    wrong("adopted into a sequence that has begun, or no whole pages", length);
  }
  const std::span<const std::vector<PageRef>> all(pages);
  const std::uint32_t targets = sequence.target.groups();
  sequence.target.adopt(length, all.first(targets));
  if (sequence.drafts()) {
    if (pages.size() > targets) {
      sequence.draft->adopt(length, all.subspan(targets));
    } else {
      sequence.draft->adopt(length, PrefixPages(sequence.draft->groups(),
                                                std::vector<PageRef>(length / kPageTokens)));
    }
  }
  adopted_pages += length / kPageTokens;
}

void FakeRunner::write_drafted(Sequence& sequence, std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    write(*sequence.draft, first + i, state_at(sequence, first + i), true);
  }
}

Result<bool> FakeRunner::prefill_chunk(Sequence& sequence, std::span<const std::uint32_t> prompt,
                                       std::uint32_t rows_max, const std::atomic<bool>* cancel) {
  if (sequence.sampler != nullptr) wrong("a sampler, but there are no logits", 0);
  const std::uint32_t first = sequence.target.length();
  if (first >= prompt.size() || prompt.size() > limits_.context - 1) {
    wrong("a prompt that is not longer than the state, or too long", prompt.size());
  }
  check(sequence, prompt);
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(
      rows_max == 0 ? limits_.prefill_chunk : rows_max, prompt.size() - first));
  if (sequence.drafts()) {
    if (Status s = sequence.draft->extend(count); !s.ok()) return s;
  }
  const auto give_up = [&sequence](Status status) {
    if (sequence.drafts()) sequence.draft->commit(0);
    return status;
  };
  if (Status s = sequence.target.extend(count); !s.ok()) return give_up(std::move(s));
  if (!pass(count, cancel)) {
    sequence.target.commit(0);
    return give_up(Status(Code::cancelled, "the pass was interrupted"));
  }
  std::uint64_t state = first == 0 ? model_.first_state() : state_at(sequence, first - 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    state = model_.next_state(state, prompt[first + i]);
    write(sequence.target, first + i, state, false);
  }
  if (sequence.drafts()) write_drafted(sequence, first, count);
  sequence.target.commit(count);
  if (sequence.drafts()) sequence.draft->commit(count);
  if (first + count < prompt.size()) return false;
  sequence.ids.assign(prompt.begin(), prompt.end());
  sequence.ids.push_back(model_.choice(state));
  return true;
}

Status FakeRunner::settle(Sequence& sequence) {
  if (!sequence.drafts()) return {};
  const std::uint32_t first = sequence.draft->length();
  const std::uint32_t count = sequence.target.length() - first;
  if (count != sequence.taps_waiting) wrong("waiting taps do not fill the gap", count);
  if (count == 0) return {};
  if (Status s = sequence.draft->extend(count); !s.ok()) return s;
  write_drafted(sequence, first, count);
  sequence.draft->commit(count);
  sequence.taps_waiting = 0;
  return {};
}

Status FakeRunner::take_turns(std::span<TurnJob> jobs, const std::atomic<bool>* cancel) {
  if (jobs.empty() || jobs.size() > limits_.sequences) wrong("a batch of this size", jobs.size());
  largest_batch = std::max(largest_batch, static_cast<std::uint32_t>(jobs.size()));
  std::uint32_t pass_rows = 0;
  for (TurnJob& job : jobs) {
    Sequence& sequence = *job.sequence;
    const auto count = static_cast<std::uint32_t>(sequence.ids.size());
    if (count == 0 || count > limits_.context || sequence.target.length() != count - 1) {
      wrong("a turn of a sequence that has not ended its prompt", count);
    }
    std::uint32_t width = std::min(job.width, limits_.context - count + 1);
    if (!sequence.drafts()) width = 1;
    if (width == 0 || width > model_.block) wrong("a turn of this width", width);
    job.outcome = {.width = width};
    job.status = {};
    if (sequence.drafts() && (width > 1 || sequence.taps_waiting + width > kWaitingMax)) {
      job.status = settle(sequence);
    }
    if (job.status.ok()) job.status = sequence.target.extend(width);
    if (job.status.ok()) pass_rows += width;
  }
  const bool done = pass_rows == 0 || pass(pass_rows, cancel);
  for (TurnJob& job : jobs) {
    if (!job.status.ok()) continue;
    Sequence& sequence = *job.sequence;
    if (!done) {
      sequence.target.commit(0);
      continue;
    }
    const std::uint32_t first = sequence.target.length();
    std::uint64_t state = first == 0 ? model_.first_state() : state_at(sequence, first - 1);
    std::uint32_t gained = 0;
    while (gained < job.outcome.width) {
      state = model_.next_state(state, sequence.ids.back());
      write(sequence.target, first + gained, state, false);
      sequence.ids.push_back(model_.choice(state));
      ++gained;
      // Whether the draft proposed this id.
      if (mixed(state + 77) % 100 >= model_.right_percent) break;
    }
    job.outcome.gained = gained;
    sequence.target.commit(gained);
    if (sequence.drafts()) sequence.taps_waiting += gained;
    job.outcome.verify_s = model_.pass_s;
  }
  return done ? Status() : Status(Code::cancelled, "the pass was interrupted");
}

void FakeRunner::truncate(Sequence& sequence, std::uint32_t count) {
  if (count == 0 || count > sequence.ids.size()) wrong("truncation to this many ids", count);
  sequence.ids.resize(count);
  sequence.target.truncate(count - 1);
  if (!sequence.drafts()) return;
  if (sequence.draft->length() > count - 1) sequence.draft->truncate(count - 1);
  sequence.taps_waiting = count - 1 - sequence.draft->length();
}

}  // namespace drafthouse
