#include "text/detokenizer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "text/utf8.h"

namespace drafthouse {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return std::string();
  pending_.append(tokenizer_->bytes_of(id));
  return take_settled_utf8(pending_);
}

std::string Detokenizer::finish() {
  if (pending_.empty()) return std::string();
  pending_.clear();
  return "\xEF\xBF\xBD";
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

// The match that ends first wins, and the longest of those that end together: what is shown must
// not depend on how the text is cut into pieces.
std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return std::string();
  held_.append(text);

  std::size_t first_end = std::string::npos;
  std::size_t begin = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && at < begin)) {
      first_end = end;
      begin = at;
    }
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, begin);
    held_.clear();
    return shown;
  }

  std::size_t tail = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > tail; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) tail = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - tail);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::finish() { return std::exchange(held_, std::string()); }

}  // namespace drafthouse
