#pragma once

#include <string>

#include "drafthouse/reply.h"

namespace drafthouse::cli {

// How a reply looks on a terminal: thoughts dimmed, an empty line before the answer, each call on a
// line of its own. Confined to one thread.
class ReplyScreen {
 public:
  // NO_COLOR in the environment: thoughts look like everything else.
  ReplyScreen();
  void reset() { last_ = Last::nothing; }

  // What to write for a part.
  std::string show(const ReplyPart& part);

 private:
  enum class Last { nothing, reasoning, content, call };
  // Ends what was shown last where something else begins.
  void begin(Last next, std::string& out);

  bool dims_;
  Last last_ = Last::nothing;
};

}  // namespace drafthouse::cli
