#include "engine/reply_constraint.h"

#include <algorithm>
#include <utility>

namespace drafthouse {
namespace {

void allow(std::span<std::uint32_t> bits, std::uint32_t id) {
  if (id / 32 < bits.size()) bits[id / 32] |= 1u << id % 32;
}

void forbid(std::span<std::uint32_t> bits, std::uint32_t id) {
  if (id / 32 < bits.size()) bits[id / 32] &= ~(1u << id % 32);
}

}  // namespace

ReplyConstraint::ReplyConstraint(std::shared_ptr<const Tokenizer> tokenizer, ReplyRule rule,
                                 std::shared_ptr<Constraint> grammar)
    : tokenizer_(std::move(tokenizer)),
      rule_(std::move(rule)),
      grammar_(std::move(grammar)),
      state_{.thought = ThoughtTracker(rule_.format, rule_.in_reasoning)} {}

Result<std::shared_ptr<Constraint>> ReplyConstraint::create(
    std::shared_ptr<const Tokenizer> tokenizer, ReplyRule rule,
    std::shared_ptr<Constraint> grammar) {
  std::shared_ptr<ReplyConstraint> made(
      new ReplyConstraint(std::move(tokenizer), std::move(rule), std::move(grammar)));
  if (Status s = made->encode_marks(); !s.ok()) return s;
  made->state_ = made->first_state();
  return std::shared_ptr<Constraint>(std::move(made));
}

Status ReplyConstraint::encode_marks() {
  const std::optional<ThoughtMarks> marks = thought_marks(rule_.format);
  Result<std::vector<TokenId>> ending = tokenizer_->encode(marks->ending, false);
  if (!ending.ok()) return ending.status();
  ending_ = std::move(ending).value();
  if (!rule_.opens || rule_.format == ReplyFormat::harmony) return {};
  // Only where it begins with a token of its own, which no grammar's text does.
  const std::string_view token = marks->open.substr(0, marks->open.find('>') + 1);
  if (tokenizer_->id_of(token) < 0) return {};
  Result<std::vector<TokenId>> opening = tokenizer_->encode(marks->open, false);
  if (!opening.ok()) return opening.status();
  opening_ = std::move(opening).value();
  return {};
}

ReplyConstraint::State ReplyConstraint::first_state() const {
  State state{.thought = ThoughtTracker(rule_.format, rule_.in_reasoning)};
  // Harmony begins every reply with the header of a message.
  const bool headed = rule_.format == ReplyFormat::harmony && rule_.opens;
  state.answers = !rule_.in_reasoning && !headed && opening_.empty();
  settle(state);
  return state;
}

void ReplyConstraint::settle(State& state) const {
  const ThoughtTracker::Phase phase = state.thought.phase();
  if (!state.ending && phase == ThoughtTracker::Phase::inside && rule_.budget.has_value() &&
      state.thought.ids_and_open() >= *rule_.budget) {
    state.ending = true;
    state.ended = 0;
  }
  if (!state.ending && phase == ThoughtTracker::Phase::after) state.answers = true;
}

Status ReplyConstraint::mask(std::span<std::uint32_t> bits) {
  if (state_.ending) {
    std::fill(bits.begin(), bits.end(), 0u);
    allow(bits, ending_[state_.ended]);
    return {};
  }
  if (grammar_ == nullptr) {
    std::fill(bits.begin(), bits.end(), ~0u);
    return {};
  }
  if (state_.answers) return grammar_->mask(bits);
  if (state_.opened > 0) {
    std::fill(bits.begin(), bits.end(), 0u);
    allow(bits, opening_[state_.opened]);
    return {};
  }
  if (!opening_.empty() && state_.thought.phase() == ThoughtTracker::Phase::before) {
    if (Status s = grammar_->mask(bits); !s.ok()) return s;
    allow(bits, opening_[0]);
    return {};
  }
  std::fill(bits.begin(), bits.end(), ~0u);
  for (const std::uint32_t id : rule_.end_ids) forbid(bits, id);
  return {};
}

Result<bool> ReplyConstraint::consume(std::uint32_t id) {
  State next = state_;
  bool by_grammar = false;
  const bool undecided = grammar_ != nullptr && !next.answers && !opening_.empty() &&
                         next.thought.phase() == ThoughtTracker::Phase::before;
  if (next.ending) {
    if (id != ending_[next.ended]) return false;
    next.ending = ++next.ended < ending_.size();
  } else if (undecided && id == opening_[next.opened]) {
    next.opened = (next.opened + 1) % static_cast<std::uint32_t>(opening_.size());
  } else if (grammar_ != nullptr && (next.answers || (undecided && next.opened == 0))) {
    const Result<bool> taken = grammar_->consume(id);
    if (!taken.ok() || !taken.value()) return taken;
    next.answers = true;
    by_grammar = true;
  } else if (undecided) {
    return false;
  }
  if (!by_grammar) {
    next.thought.push(tokenizer_->bytes_of(id));
    settle(next);
  }
  steps_.push_back({std::exchange(state_, std::move(next)), by_grammar});
  if (steps_.size() > kUndoMax) steps_.pop_front();
  return true;
}

Status ReplyConstraint::rollback(std::size_t ids) {
  if (ids > steps_.size()) {
    return Status(Code::internal, "a reply was to be taken back by more ids than are remembered");
  }
  std::size_t by_grammar = 0;
  for (; ids > 0; --ids) {
    if (steps_.back().by_grammar) ++by_grammar;
    state_ = std::move(steps_.back().before);
    steps_.pop_back();
  }
  return by_grammar > 0 ? grammar_->rollback(by_grammar) : Status();
}

Status ReplyConstraint::reset() {
  steps_.clear();
  state_ = first_state();
  return grammar_ != nullptr ? grammar_->reset() : Status();
}

Result<std::shared_ptr<Constraint>> ReplyConstraint::clone() const {
  std::shared_ptr<Constraint> grammar;
  if (grammar_ != nullptr) {
    Result<std::shared_ptr<Constraint>> made = grammar_->clone();
    if (!made.ok()) return made;
    grammar = std::move(made).value();
  }
  std::shared_ptr<ReplyConstraint> made(new ReplyConstraint(tokenizer_, rule_, std::move(grammar)));
  made->ending_ = ending_;
  made->opening_ = opening_;
  made->state_ = state_;
  made->steps_ = steps_;
  return std::shared_ptr<Constraint>(std::move(made));
}

}  // namespace drafthouse
