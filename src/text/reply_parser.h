#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_call.h"

namespace drafthouse {

// How a family marks what it thinks and the tools it calls.
enum class ReplyFormat : std::uint8_t {
  plain,    // not at all
  think,    // <think> … </think>; <tool_call> with JSON (Qwen3) or XML (Qwen3-Coder, Qwen3.5)
  gemma,    // <|channel>thought … <channel|>; <|tool_call> … <tool_call|>
  harmony,  // gpt-oss: messages with a channel each
  llama,    // <|python_tag|>, or a bare JSON call as the whole reply
  lfm2,     // <think>; <|tool_call_start|> [f(a=1)] <|tool_call_end|>
};
std::string_view name_of(ReplyFormat format);

// The format that a chat template speaks of, from the markers in its source.
ReplyFormat reply_format_of(std::string_view chat_template);
// Whether a rendered prompt ends inside a thought, so that the reply begins there.
bool ends_in_reasoning(ReplyFormat format, std::string_view prompt);

struct ReplyPart {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ToolCall> calls = {};
};

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
  bool at_start_ = true;  // of a part, where newlines are not part of it
};

}  // namespace drafthouse
