#include "text/thought.h"

#include <algorithm>
#include <utility>

namespace drafthouse {

std::optional<ThoughtMarks> thought_marks(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::think:
    case ReplyFormat::lfm2: return ThoughtMarks{"<think>", "</think>", "", "\n</think>\n\n"};
    case ReplyFormat::gemma:
      return ThoughtMarks{"<|channel>thought", "<channel|>", "", "\n<channel|>"};
    case ReplyFormat::harmony:
      return ThoughtMarks{"<|channel|>analysis<|message|>", "<|end|>",
                          "<|channel|>final<|message|>",
                          "<|end|><|start|>assistant<|channel|>final<|message|>"};
    case ReplyFormat::plain:
    case ReplyFormat::llama: return std::nullopt;
  }
  return std::nullopt;
}

ThoughtTracker::ThoughtTracker(ReplyFormat format, bool in_reasoning)
    : marks_(thought_marks(format)), phase_(in_reasoning ? Phase::inside : Phase::before) {}

bool ThoughtTracker::take(std::string_view marker) {
  const std::size_t at = marker.empty() ? std::string::npos : tail_.find(marker);
  if (at == std::string::npos) return false;
  tail_.erase(0, at + marker.size());
  return true;
}

bool ThoughtTracker::may_end(std::string_view bytes) const {
  bytes.remove_prefix(std::min(bytes.find_first_not_of('\n'), bytes.size()));
  return marks_->close.starts_with(bytes);
}

void ThoughtTracker::count(std::string_view bytes) {
  if (const std::string longer = open_piece_ + std::string(bytes); may_end(longer)) {
    ++open_;
    open_piece_ = longer.substr(std::min(longer.find_first_not_of('\n'), longer.size()));
    return;
  }
  ids_ += std::exchange(open_, 0);
  open_piece_.clear();
  if (may_end(bytes)) return count(bytes);
  ++ids_;
}

void ThoughtTracker::push(std::string_view bytes) {
  if (!marks_.has_value()) return;
  tail_ += bytes;
  const bool was_inside = phase_ == Phase::inside;
  bool moved = false;
  for (bool again = true; again;) {
    again = false;
    if (phase_ == Phase::inside) {
      if (take(marks_->close)) {
        phase_ = marks_->answer.empty() ? Phase::after : Phase::between;
        again = true;
      }
    } else if (take(marks_->open)) {
      phase_ = Phase::inside;
      again = true;
    } else if (phase_ != Phase::after && take(marks_->answer)) {
      phase_ = Phase::after;
      again = true;
    }
    moved = moved || again;
  }
  if (was_inside && !moved) {
    count(bytes);
  } else if (moved) {
    open_ = 0;
    open_piece_.clear();
  }
  const std::size_t longest =
      std::max({marks_->open.size(), marks_->close.size(), marks_->answer.size()}) - 1;
  if (tail_.size() > longest) tail_.erase(0, tail_.size() - longest);
}

}  // namespace drafthouse
