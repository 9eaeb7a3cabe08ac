#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "sampling/constraint.h"
#include "text/reply_parser.h"
#include "text/thought.h"
#include "text/tokenizer.h"

namespace drafthouse {

// How a reply begins and what its thoughts are allowed.
struct ReplyRule {
  ReplyFormat format = ReplyFormat::plain;
  bool in_reasoning = false;  // the prompt ends inside a thought
  bool opens = false;         // the prompt ends where a reply begins, so that it may think first
  std::optional<std::uint32_t> budget = {};  // ids of thoughts; absent: no limit
  std::vector<std::uint32_t> end_ids = {};   // that end the answer; ascending
};

// Lets a reply think before its grammar begins, and ends its thoughts once they have used up their
// ids: then the ids of the ending (ThoughtMarks) are the only ones allowed, one after the other.
// The grammar holds from the first id behind the thought on; without a thought, from the first one.
// Until then nothing ends a reply that has a grammar. Confined to one thread at a time.
class ReplyConstraint final : public Constraint {
 public:
  // A format with thoughts. `grammar` may be null.
  static Result<std::shared_ptr<Constraint>> create(std::shared_ptr<const Tokenizer> tokenizer,
                                                    ReplyRule rule,
                                                    std::shared_ptr<Constraint> grammar);

  Status mask(std::span<std::uint32_t> bits) override;
  Result<bool> consume(std::uint32_t id) override;
  // At most kUndoMax ids, more than a block has.
  Status rollback(std::size_t ids) override;
  Status reset() override;
  Result<std::shared_ptr<Constraint>> clone() const override;

 private:
  struct State {
    ThoughtTracker thought;
    std::uint32_t ended = 0;   // ids of the ending that came
    bool ending = false;       // more of it follows
    std::uint32_t opened = 0;  // ids of the opening that came, while it is not whole
    bool answers = false;      // the grammar has begun
  };
  struct Step {
    State before;
    bool by_grammar;
  };
  static constexpr std::size_t kUndoMax = 256;

  ReplyConstraint(std::shared_ptr<const Tokenizer> tokenizer, ReplyRule rule,
                  std::shared_ptr<Constraint> grammar);
  Status encode_marks();
  State first_state() const;
  // Starts the ending or the grammar where the state is due for it.
  void settle(State& state) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const ReplyRule rule_;
  const std::shared_ptr<Constraint> grammar_;
  std::vector<std::uint32_t> ending_;
  // What a thought begins with, where the answer may begin instead; empty: it may not.
  std::vector<std::uint32_t> opening_;
  State state_;
  std::deque<Step> steps_;
};

}  // namespace drafthouse
