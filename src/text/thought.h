#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "drafthouse/reply.h"
#include "text/tokenizer.h"

namespace drafthouse {

// How a format begins and ends a thought.
struct ThoughtMarks {
  std::string_view open;
  std::string_view close;
  // What begins the answer; empty: it begins where a thought ends.
  std::string_view answer;
  // What ends a thought early and begins the answer.
  std::string_view ending;
};
// Absent: the format knows no thoughts.
std::optional<ThoughtMarks> thought_marks(ReplyFormat format);

// Whether a reply thinks, id by id: a function of the ids alone. A value; cheap to copy.
class ThoughtTracker {
 public:
  enum class Phase : std::uint8_t {
    before,   // nothing was thought yet
    inside,   // in a thought
    between,  // behind one, and the answer has not begun
    after,    // in the answer
  };

  // `in_reasoning`: see ends_in_reasoning().
  ThoughtTracker(ReplyFormat format, bool in_reasoning);

  // Goes on by an id that stands for these bytes.
  void push(std::string_view bytes);
  Phase phase() const { return phase_; }
  // Ids in thoughts, without those that begin or end one; line ends before an end are part of it.
  std::uint32_t ids() const { return ids_; }
  // The same with ids at the end of the text so far that may turn out to belong to an end.
  std::uint32_t ids_and_open() const { return ids_ + open_; }

 private:
  bool take(std::string_view marker);
  // An id inside a thought.
  void count(std::string_view bytes);
  // Whether line ends and a piece of the end's marker are all that this is.
  bool may_end(std::string_view bytes) const;

  std::optional<ThoughtMarks> marks_;
  Phase phase_ = Phase::before;
  std::uint32_t ids_ = 0;
  std::uint32_t open_ = 0;
  std::string open_piece_;  // of the marker, in the open ids
  std::string tail_;        // that may begin a marker
};

}  // namespace drafthouse
