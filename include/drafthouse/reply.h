#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What a reply is made of: what the model thinks, what it answers, the tools that it calls.

namespace drafthouse {

// How a family marks what it thinks and the tools it calls.
enum class ReplyFormat : std::int32_t {
  plain,    // not at all
  think,    // <think> … </think>; <tool_call> with JSON (Qwen3) or XML (Qwen3-Coder, Qwen3.5)
  gemma,    // <|channel>thought … <channel|>; <|tool_call> … <tool_call|>
  harmony,  // gpt-oss: messages with a channel each
  llama,    // <|python_tag|>, or a bare JSON call as the whole reply
  lfm2,     // <think>; <|tool_call_start|> [f(a=1)] <|tool_call_end|>
};
std::string_view name_of(ReplyFormat format);
// The format that has this name.
std::optional<ReplyFormat> reply_format_named(std::string_view name);

// A call that a model wrote, or that a message of a conversation holds.
struct ToolCall {
  std::string name = {};
  std::string arguments = {};  // a JSON object
  std::string id = {};         // in messages, where a template wants one

  friend bool operator==(const ToolCall&, const ToolCall&) = default;
};

// A piece of a reply, or all of it.
struct ReplyPart {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ToolCall> calls = {};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// How a reply is read. It is split by its ids alone, so the same with and without a draft.
struct ReplyOptions {
  // Absent: the one that the model's chat template, or else its vocabulary, speaks of.
  std::optional<ReplyFormat> format = {};
  // The tools that the reply may call, a JSON list of {"type": "function", "function": {"name",
  // "parameters"}}: says which types bare values have, and makes a whole reply in JSON a call where
  // a family writes calls so.
  std::string tools = {};
  // Tokens of thoughts, after which they are ended in the family's own words ("\n</think>\n\n";
  // "\n<channel|>"; "<|end|><|start|>assistant<|channel|>final<|message|>"). The ids depend on it,
  // but on nothing else that they did not depend on before. Absent: no limit. invalid_argument
  // where the format knows no thoughts.
  std::optional<std::uint32_t> thinking_budget = {};
};

// What a chat template is given besides the messages. invalid_argument, with the place, for what is
// not of the form; unsupported for what the template does not ask for, which would change nothing.
struct ChatOptions {
  // A JSON object of template variables: {"enable_thinking": false, "reasoning_effort": "high"}.
  std::string variables = {};
  std::string tools = {};      // a JSON list, as in ReplyOptions
  std::string documents = {};  // a JSON list of objects
};

}  // namespace drafthouse
