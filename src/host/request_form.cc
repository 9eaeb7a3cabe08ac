#include "host/request_form.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "text/chat_options.h"
#include "text/utf8.h"

namespace drafthouse {
namespace {

Status check_text(const std::string& field, std::string_view text) {
  const std::size_t at = first_invalid_utf8(text);
  if (at == std::string_view::npos) return {};
  return Status(
      Code::invalid_argument,
      fmt::format("{}: byte {:#04x} at offset {} is not UTF-8; encode the text as UTF-8, or "
                  "give ids",
                  field, static_cast<unsigned char>(text[at]), at));
}

Status check_texts(const ChatTurn& turn, std::size_t index) {
  const std::string where = fmt::format("messages[{}].", index);
  for (const auto& [field, text] :
       {std::pair{"role", &turn.role}, std::pair{"content", &turn.content},
        std::pair{"reasoning", &turn.reasoning}, std::pair{"call_id", &turn.call_id},
        std::pair{"name", &turn.name}}) {
    if (Status s = check_text(where + field, *text); !s.ok()) return s;
  }
  for (const ToolCall& call : turn.calls) {
    for (const std::string* text : {&call.name, &call.arguments, &call.id}) {
      if (Status s = check_text(where + "calls", *text); !s.ok()) return s;
    }
  }
  return {};
}

Status check_texts(const SubmitRequest& request) {
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    if (Status s = check_texts(request.messages[i], i); !s.ok()) return s;
  }
  for (std::size_t i = 0; i < request.stop.size(); ++i) {
    if (Status s = check_text(fmt::format("stop[{}]", i), request.stop[i]); !s.ok()) return s;
  }
  for (const auto& [field, text] :
       {std::pair{"prompt", &request.prompt}, std::pair{"grammar", &request.grammar.text},
        std::pair{"template options", &request.chat.variables},
        std::pair{"tools", &request.chat.tools}, std::pair{"documents", &request.chat.documents}}) {
    if (Status s = check_text(field, *text); !s.ok()) return s;
  }
  return {};
}

}  // namespace

Status check_wait(std::string_view what, double seconds) {
  if (seconds >= 0) return {};
  return Status(Code::invalid_argument,
                fmt::format("{} is {}; it must be 0 or more", what, seconds));
}

Status check_form(const SubmitRequest& request) {
  const int given = (request.messages.empty() ? 0 : 1) + (request.prompt.empty() ? 0 : 1) +
                    (request.prompt_ids.empty() ? 0 : 1);
  if (given != 1) {
    return Status(Code::invalid_argument,
                  fmt::format("a request needs exactly one of messages, prompt and prompt_ids; {} "
                              "were given",
                              given));
  }
  if (Status s = check_wait("timeout_s", request.timeout_s); !s.ok()) return s;
  for (const std::string& stop : request.stop) {
    if (!stop.empty()) continue;
    return Status(Code::invalid_argument, "a stop string needs at least one character");
  }
  if (Status s = check_texts(request); !s.ok()) return s;
  if (request.messages.empty() &&
      !(request.chat.variables.empty() && request.chat.documents.empty())) {
    return Status(
        Code::invalid_argument,
        "template options and documents go into the chat template, which only messages go "
        "through; leave them out");
  }
  return check_chat_options(request.chat);
}

}  // namespace drafthouse
