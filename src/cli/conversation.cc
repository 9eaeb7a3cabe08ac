#include "cli/conversation.h"

#include <poll.h>

#include <array>
#include <chrono>
#include <optional>

namespace drafthouse::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Between two looks at whether the answer should end, when no descriptor tells.
constexpr int kLookMs = 250;

void wait_for_event(const Stream& stream, int descriptor) {
  std::array<pollfd, 2> waiting = {pollfd{stream.event_fd(), POLLIN, 0},
                                   pollfd{descriptor, POLLIN, 0}};
  ::poll(waiting.data(), waiting.size(), kLookMs);
}

}  // namespace

Conversation::Conversation(Host& host, SubmitRequest base, const std::string& system)
    : host_(host), base_(std::move(base)) {
  base_.messages.clear();
  if (!system.empty()) base_.messages.push_back({"system", system});
  fixed_ = base_.messages.size();
}

void Conversation::clear() {
  base_.messages.resize(fixed_);
  answers_ = 0;
  pending_.clear();
}

ChatAnswer Conversation::say(const std::string& message, const Listener& listener) {
  base_.messages.push_back({"user", message});
  ChatAnswer answer = ask(listener);
  // One that was interrupted before its first word says nothing.
  const bool silent = answer.result.text.empty() && answer.result.finish_reason == "cancelled";
  if (answer.status.ok() && !silent) {
    const ReplyPart& reply = answer.result.reply;
    base_.messages.push_back({"assistant", reply.content, reply.reasoning, reply.calls});
    ++answers_;
    pending_.clear();
  } else {
    base_.messages.pop_back();
    pending_ = message;
  }
  return answer;
}

ChatAnswer Conversation::retry(const Listener& listener) {
  std::string message = pending_;
  std::optional<ChatTurn> taken_back;
  if (message.empty()) {
    taken_back = base_.messages.back();
    base_.messages.pop_back();
    message = base_.messages.back().content;
    base_.messages.pop_back();
    --answers_;
  }
  ChatAnswer answer = say(message, listener);
  if (!pending_.empty() && taken_back.has_value()) {
    base_.messages.push_back({"user", message});
    base_.messages.push_back(*taken_back);
    ++answers_;
    pending_.clear();
  }
  return answer;
}

ChatAnswer Conversation::ask(const Listener& listener) {
  ChatAnswer answer;
  const Clock::time_point start = Clock::now();
  Result<std::unique_ptr<Stream>> submitted = host_.submit(base_);
  if (!submitted.ok()) {
    answer.status = submitted.status();
    return answer;
  }
  Stream& stream = *submitted.value();
  bool stopped = false;
  const auto stop = [&] {
    if (!stopped) stream.cancel();
    stopped = true;
  };
  while (!stream.over()) {
    if (listener.stop()) stop();
    std::optional<Event> event = stream.next(0);
    if (!event.has_value()) {
      wait_for_event(stream, listener.descriptor);
      continue;
    }
    if (event->kind == Event::Kind::started) answer.cache = event->cache;
    if (event->kind == Event::Kind::tokens) {
      if (answer.first_token_s == 0 && !event->ids.empty()) {
        answer.first_token_s = std::chrono::duration<double>(Clock::now() - start).count();
      }
      if (!listener.piece(*event)) stop();
    }
    if (!event->terminal()) continue;
    answer.result = std::move(event->result);
    const bool by_others = event->kind == Event::Kind::cancelled && !stopped;
    if (event->kind == Event::Kind::failed || by_others) answer.status = event->status;
  }
  answer.cache.stored_pages = answer.result.cache.stored_pages;
  return answer;
}

}  // namespace drafthouse::cli
