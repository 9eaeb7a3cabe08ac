#include "cli/demo_talks.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <optional>

#include "cli/interrupt.h"

namespace drafthouse::cli {
namespace {

constexpr int kLookMs = 100;

constexpr char kSystem[] =
    "You are a careful assistant that works on a small software project together with other "
    "assistants. The project is written in Python and keeps its notes in plain text files. Answer "
    "in a few short sentences. When you show code, show whole functions and explain what they do "
    "in "
    "one sentence. Do not repeat the question. Do not invent files that were not mentioned. When "
    "something is not clear, say what you need to know. Numbers are written as digits, lists have "
    "one entry per line, and every answer ends with a sentence that says what to do next.";

constexpr std::array kOpenings = {
    "Write a Python function that adds two numbers.",
    "Explain what a hash table is and when to use one.",
    "Which steps does it take to read a file line by line?",
    "Name three things that a good test has.",
    "How would you sort a list of names?",
    "Write a function that counts the words of a text.",
};
constexpr std::array kFollowUps = {
    "Now explain it in other words.",
    "Show an example.",
    "What could go wrong there?",
    "Make it shorter.",
    "Which of these matters most, and why?",
    "Write a test for it.",
};

std::vector<ChatTurn> messages_of(const DemoTalk& talk, const DemoTalk& before,
                                  std::uint32_t round) {
  std::vector<ChatTurn> messages = {{"system", kSystem}};
  for (std::uint32_t i = 0; i <= round; ++i) {
    messages.push_back({"user", talk.prompts[i]});
    if (i < round) messages.push_back({"assistant", before.replies[i].result.text});
  }
  return messages;
}

// A request on its way, and where its reply goes.
struct Pending {
  DemoTalk* talk;
  std::unique_ptr<Stream> stream;
  DemoReply reply;
};

// Takes what has come. Whether something had.
bool drain(Pending& pending, Status& status) {
  bool any = false;
  while (std::optional<Event> event = pending.stream->next(0)) {
    any = true;
    if (event->kind == Event::Kind::started) pending.reply.cache = event->cache;
    if (!event->terminal()) continue;
    pending.reply.result = std::move(event->result);
    if (event->kind != Event::Kind::finished && status.ok()) status = event->status;
  }
  return any;
}

void wait_for_any(const std::vector<Pending>& all) {
  std::vector<pollfd> waiting;
  for (const Pending& pending : all) {
    if (!pending.stream->over()) waiting.push_back({pending.stream->event_fd(), POLLIN, 0});
  }
  if (!waiting.empty()) ::poll(waiting.data(), waiting.size(), kLookMs);
}

}  // namespace

std::vector<DemoTalk> make_talks(const std::string& model, std::uint32_t count,
                                 std::uint32_t rounds) {
  std::vector<DemoTalk> talks;
  for (std::uint32_t c = 0; c < count; ++c) {
    DemoTalk talk{model, {kOpenings[c % kOpenings.size()]}};
    if (c >= kOpenings.size()) talk.prompts[0] += fmt::format(" (question {})", c);
    for (std::uint32_t r = 1; r < rounds; ++r) {
      talk.prompts.emplace_back(kFollowUps[(c + r - 1) % kFollowUps.size()]);
    }
    talks.push_back(std::move(talk));
  }
  return talks;
}

Status run_round(Host& host, std::vector<DemoTalk>& talks, const std::vector<DemoTalk>& before,
                 std::uint32_t round, const DemoRequest& request) {
  std::vector<Pending> all;
  for (std::size_t i = 0; i < talks.size(); ++i) {
    SubmitRequest submit;
    submit.model = talks[i].model;
    submit.messages = messages_of(talks[i], before[i], round);
    submit.max_tokens = request.max_tokens;
    submit.use_cache = request.use_cache;
    Result<std::unique_ptr<Stream>> stream = host.submit(submit);
    if (!stream.ok()) return stream.status();
    all.push_back({&talks[i], std::move(stream).value(), {}});
  }
  Status status;
  bool open = true;
  while (open) {
    if (interrupt_flag().load()) return Status(Code::cancelled, "interrupted");
    bool any = false;
    open = false;
    for (Pending& pending : all) {
      if (pending.stream->over()) continue;
      any |= drain(pending, status);
      open |= !pending.stream->over();
    }
    if (open && !any) wait_for_any(all);
  }
  for (Pending& pending : all) pending.talk->replies.push_back(std::move(pending.reply));
  return status;
}

}  // namespace drafthouse::cli
