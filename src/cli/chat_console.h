#pragma once

#include <string>
#include <string_view>

#include "cli/line_reader.h"
#include "cli/reply_screen.h"
#include "cli/verb.h"

namespace drafthouse::cli {

// What is typed in a chat, and what is shown around and of the answers: answers go to standard
// output, the rest to standard error. With `json`, answers are not shown here. Confined to one
// thread.
class ChatConsole {
 public:
  ChatConsole(SignalWatch& watch, bool json);

  // Whether a person types here.
  bool terminal() const { return terminal_; }

  // Waits for a message or command; lines between two """ are one. Empty ones are skipped.
  LineReader::Got read(std::string& text);

  // A piece of an answer, and its end; see write_out().
  ExitCode piece(const std::string& text, const ReplyPart& reply);
  ExitCode end_answer();

  // The line about an answer.
  void figures(const std::string& line) const;
  void show(std::string_view text) const;

 private:
  // Takes a line into a message; false: more lines belong to it.
  bool add_line(std::string line);

  LineReader reader_;
  bool json_;
  bool terminal_;
  bool screen_;  // answers go to a terminal
  bool dims_;
  ReplyScreen reply_;
  bool ends_line_ = true;
  bool fenced_ = false;
  std::string message_;
};

}  // namespace drafthouse::cli
