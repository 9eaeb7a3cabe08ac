#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "cli/reply_screen.h"
#include "drafthouse/engine.h"

namespace drafthouse::cli {

// An answer on its way to standard output, for as long as somebody reads it. A terminal shows all
// of a reply; everybody else gets its answer alone, with thoughts on standard error where that is a
// terminal. Confined to one thread.
class AnswerStream {
 public:
  struct Options {
    bool has_text = true;         // false: ids are written
    bool continues_text = false;  // --raw: in a pipe nothing is taken out
    bool constrained = false;     // by a grammar, whose text is written to the byte
    ReplyFormat format = ReplyFormat::plain;
  };
  explicit AnswerStream(const Options& options);

  // What comes, as one text and by its parts; both are to be told.
  void push(std::string_view text, std::span<const std::uint32_t> ids);
  void push(const ReplyPart& part);
  void end_line();
  // The answers after the first.
  void push_more(const GenerateResult& result);
  // kOk as long as everything was written.
  ExitCode state() const { return state_; }

 private:
  void push_answer(const ReplyPart& part);
  void end_thought();
  void show(std::string_view out);
  void write(std::string_view text);

  bool has_text_;
  bool on_terminal_;
  bool splits_;
  bool keeps_blank_lines_;
  ReplyScreen screen_;
  bool thinks_ = false;  // on standard error
  bool begun_ = false;   // something of this answer was written
  bool ends_line_ = true;
  ExitCode state_ = kOk;
};

}  // namespace drafthouse::cli
