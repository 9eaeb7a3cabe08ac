#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/reply.h"
#include "text/tool_call.h"

namespace drafthouse {

// The format that a chat template speaks of, from the markers in its source; where it speaks of
// none, the one whose markers are tokens. `has_token` says what is.
ReplyFormat reply_format_of(std::string_view chat_template);
ReplyFormat reply_format_of(std::string_view chat_template,
                            const std::function<bool(std::string_view)>& has_token);
// The tokens that a reply's parser has to see, though they are special ones; no others of those.
std::span<const std::string_view> marker_tokens(ReplyFormat format);
// Whether a rendered prompt ends inside a thought, so that the reply begins there.
bool ends_in_reasoning(ReplyFormat format, std::string_view prompt);
// Whether it ends with the header of a reply, behind which a model may think or answer.
bool opens_reply(ReplyFormat format, std::string_view prompt);

// Splits a reply, as its text comes, into thought, answer and tool calls. A function of the text
// alone: wherever it is cut into pieces, the parts joined are the same. Markers must be in the
// text, so the text is one in which special tokens are written. What looks like a call but cannot
// be read as one is content, with its markers; nothing is lost. Confined to one thread.
class ReplyParser {
 public:
  struct Options {
    ReplyFormat format = ReplyFormat::plain;
    bool in_reasoning = false;    // see ends_in_reasoning()
    std::string tools_json = {};  // see ToolTypes; without tools Llama's bare JSON is content
  };
  explicit ReplyParser(Options options);

  // What is certain after this text.
  ReplyPart push(std::string_view text);
  // Whether nothing but white space follows the last call.
  bool ends_with_call() const { return ends_with_call_; }
  // What was held back. A call whose end marker is missing is one if it is whole otherwise.
  ReplyPart finish();

 private:
  enum class State : std::uint8_t { content, reasoning, call, header, maybe_call };
  struct Marker {
    std::string_view text;
    State next;
  };

  std::vector<Marker> markers() const;
  bool step(bool last, ReplyPart& out);
  void enter(const Marker& marker, ReplyPart& out);
  void emit(std::string_view text, ReplyPart& out);
  void end_call(std::string_view end_marker, ReplyPart& out);
  void read_header();
  std::vector<ToolCall> calls_in(std::string_view text) const;

  const Options options_;
  const ToolTypes types_;
  State state_;
  std::string held_;       // not yet looked at
  std::string body_;       // of a call, or a message's header
  std::string opened_by_;  // the marker that began the call
  std::string recipient_;  // harmony: the tool that a message is for
  std::string
      newlines_;  // that end what was given out so far, where the next text decides about them
  bool ends_with_call_ = false;
  bool at_start_ = true;  // of a part, where newlines are not part of it
};

}  // namespace drafthouse
