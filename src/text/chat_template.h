#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drafthouse/reply.h"
#include "drafthouse/status.h"
#include "formats/tokenizer_source.h"

namespace drafthouse {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::string reasoning = {};
  std::vector<ToolCall> calls = {};
  std::string call_id = {};
  std::string name = {};
};

// A model's own chat template (Jinja, from an untrusted file): runs with fuel, output and time
// limits. Immutable, thread-safe.
class ChatTemplate {
 public:
  // not_found when the source has no template; corrupt when it does not compile. Messages, also of
  // render(), begin with the place where the template stands.
  static Result<std::shared_ptr<const ChatTemplate>> create(const TokenizerSource& source);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // The prompt text; encode it without adding specials. invalid_argument and unsupported as
  // ChatOptions and usable() say; also for a call in a message whose arguments are no JSON object.
  Result<std::string> render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                             const ChatOptions& options) const;

  // unsupported: the template is empty, so that no conversation becomes a prompt; render() says the
  // same.
  Status usable() const;

  // The text that the template puts after a finished assistant message ("<|im_end|>"), or "".
  const std::string& end_of_turn() const;

 private:
  Result<std::string> variables(const ChatOptions& options) const;

  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace drafthouse
