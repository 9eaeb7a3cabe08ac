#pragma once

#include "drafthouse/engine.h"

namespace drafthouse::cli {

// Adds how a reply splits: "content"; "reasoning", "reasoning_tokens" and "tool_calls" where there
// are some. `Json` is nlohmann::json, which headers do not name.
template <class Json>
void add_reply(Json& object, const GenerateResult& result) {
  object["content"] = result.reply.content;
  if (!result.reply.reasoning.empty()) object["reasoning"] = result.reply.reasoning;
  if (result.reasoning_tokens > 0) object["reasoning_tokens"] = result.reasoning_tokens;
  for (const ToolCall& call : result.reply.calls) {
    object["tool_calls"].push_back({{"name", call.name}, {"arguments", call.arguments}});
  }
}

}  // namespace drafthouse::cli
