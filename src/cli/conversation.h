#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/host.h"

namespace drafthouse::cli {

// What came of one message.
struct ChatAnswer {
  // ok: the answer is whole, or was interrupted (finish_reason "cancelled"); what text there was is
  // then part of the conversation. After a failure, and without any text, the conversation is as
  // before the message.
  Status status = {};
  GenerateResult result = {};
  CacheReport cache = {};
  double first_token_s = 0;  // from the message until the first id, as the reader saw it
};

// A conversation with one model of a host: keeps its messages, so that each answer finds the state
// of all before it in the model's prefix cache. Confined to one thread.
class Conversation {
 public:
  // `base`: model, limits and so on of every request. `system` may be empty. The host must outlive
  // it.
  Conversation(Host& host, SubmitRequest base, const std::string& system);

  // How an answer goes out and ends early.
  struct Listener {
    // Of tokens. False: nobody reads it any more, the answer ends.
    std::function<bool(const Event& event)> piece = {};
    // Whether the answer should end now; asked whenever `descriptor` (−1: none) becomes readable,
    // and from time to time.
    std::function<bool()> stop = {};
    int descriptor = -1;
  };

  // Says something and waits for the answer.
  ChatAnswer say(const std::string& message, const Listener& listener);
  // Takes the last answer back, and asks for it again.
  ChatAnswer retry(const Listener& listener);
  bool can_retry() const { return !pending_.empty() || answers_ > 0; }
  // Forgets all but the system message.
  void clear();

  std::uint32_t answers() const { return answers_; }
  const std::vector<ChatTurn>& messages() const { return base_.messages; }

 private:
  ChatAnswer ask(const Listener& listener);

  Host& host_;
  SubmitRequest base_;         // with the conversation so far
  std::size_t fixed_ = 0;      // messages that clear() keeps
  std::uint32_t answers_ = 0;  // that stand in the conversation
  std::string pending_;        // the last message, when it got no answer
};

}  // namespace drafthouse::cli
