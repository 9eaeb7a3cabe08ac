#include "cli/conversation.h"

#include <gtest/gtest.h>

#include <deque>

namespace drafthouse::cli {
namespace {

Event tokens(std::string text) {
  Event event;
  event.kind = Event::Kind::tokens;
  event.text = std::move(text);
  event.ids = {1};
  return event;
}

Event end(Event::Kind kind, const std::string& text, const std::string& finish_reason,
          const Status& status = {}) {
  Event event;
  event.kind = kind;
  event.result.text = text;
  event.result.reply.content = text;
  event.result.finish_reason = finish_reason;
  event.result.cache.stored_pages = 3;
  event.status = status;
  return event;
}

class FakeStream : public Stream {
 public:
  FakeStream(std::deque<Event> events, Event cancelled)
      : events_(std::move(events)), cancelled_(std::move(cancelled)) {}

  std::optional<Event> next(double) override {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    over_ = event.terminal();
    return event;
  }
  void cancel() override { events_ = {cancelled_}; }
  bool over() const override { return over_; }
  int event_fd() const override { return -1; }

 private:
  std::deque<Event> events_;
  Event cancelled_;
  bool over_ = false;
};

// A host whose every request gets the events that a test has put there.
class FakeHost : public Host {
 public:
  std::vector<SubmitRequest> requests;
  std::deque<Event> events;
  Event cancelled = end(Event::Kind::cancelled, "", "cancelled");
  Status refuses;

  void answers(const std::string& text) {
    Event started;
    started.kind = Event::Kind::started;
    started.cache = {64, "ram", "differs at token 70"};
    events = {started, tokens(text), end(Event::Kind::finished, text, "stop")};
  }

  Result<std::unique_ptr<Stream>> submit(const SubmitRequest& request) override {
    requests.push_back(request);
    if (!refuses.ok()) return refuses;
    return std::unique_ptr<Stream>(std::make_unique<FakeStream>(events, cancelled));
  }
  Status add(const ModelSpec&) override { return {}; }
  Status load(const ModelSpec&) override { return {}; }
  Status load(std::string_view) override { return {}; }
  Status unload(const std::string&, const UnloadOptions&) override { return {}; }
  Status remove(const std::string&, const UnloadOptions&) override { return {}; }
  Status reconfigure(const std::string&, const CacheConfig&) override { return {}; }
  Status pin(const std::string&, bool) override { return {}; }
  Result<std::size_t> clear_cache(const std::string&, const std::optional<std::string>&) override {
    return std::size_t{0};
  }
  Status flush_cache(double) override { return {}; }
  HostStats stats() const override { return {}; }
  std::vector<LedgerRow> ledger() const override { return {}; }
  Status drain(double) override { return {}; }
};

// What was said, in one line.
std::string text_of(const std::vector<ChatTurn>& messages) {
  std::string text;
  for (const ChatTurn& message : messages)
    text += message.role.substr(0, 1) + ":" + message.content + " ";
  return text;
}

class ConversationTest : public testing::Test {
 protected:
  FakeHost host_;
  Conversation conversation_{host_, {.model = "m", .max_tokens = 7}, "be kind"};
  std::string shown_;
  bool stop_ = false;
  bool read_ = true;
  Conversation::Listener listener_{.piece =
                                       [this](const Event& event) {
                                         shown_ += event.text;
                                         return read_;
                                       },
                                   .stop = [this] { return stop_; }};
};

TEST_F(ConversationTest, EveryRequestHoldsAllThatWasSaid) {
  host_.answers("one");
  const ChatAnswer answer = conversation_.say("first", listener_);
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.result.text, "one");
  EXPECT_EQ(answer.cache.matched_tokens, 64u);
  EXPECT_EQ(answer.cache.stored_pages, 3u);
  EXPECT_GT(answer.first_token_s, 0);
  EXPECT_EQ(shown_, "one");
  host_.answers("two");
  conversation_.say("second", listener_);
  EXPECT_EQ(text_of(host_.requests[0].messages), "s:be kind u:first ");
  EXPECT_EQ(text_of(host_.requests[1].messages), "s:be kind u:first a:one u:second ");
  EXPECT_EQ(host_.requests[1].model, "m");
  EXPECT_EQ(host_.requests[1].max_tokens, 7u);
  EXPECT_EQ(conversation_.answers(), 2u);

  conversation_.clear();
  EXPECT_EQ(text_of(conversation_.messages()), "s:be kind ");
  EXPECT_FALSE(conversation_.can_retry());
}

TEST_F(ConversationTest, RetryAsksTheSameAgain) {
  EXPECT_FALSE(conversation_.can_retry());
  host_.answers("one");
  conversation_.say("first", listener_);
  host_.answers("another");
  conversation_.retry(listener_);
  EXPECT_EQ(text_of(host_.requests[1].messages), text_of(host_.requests[0].messages));
  EXPECT_EQ(text_of(conversation_.messages()), "s:be kind u:first a:another ");
  EXPECT_EQ(conversation_.answers(), 1u);
}

TEST_F(ConversationTest, AFailureLeavesTheConversationAsItWas) {
  host_.answers("one");
  conversation_.say("first", listener_);
  const std::string before = text_of(conversation_.messages());
  host_.refuses = Status(Code::context_overflow, "too long");
  EXPECT_EQ(conversation_.say("second", listener_).status.code(), Code::context_overflow);
  EXPECT_EQ(text_of(conversation_.messages()), before);
  host_.refuses = {};
  host_.events = {end(Event::Kind::failed, "tw", "error", Status(Code::no_memory, "no room"))};
  EXPECT_EQ(conversation_.retry(listener_).status.code(), Code::no_memory);
  EXPECT_EQ(text_of(conversation_.messages()), before);
  // A time limit is a failure too: nobody here asked for the end.
  host_.events = {end(Event::Kind::cancelled, "tw", "cancelled", Status(Code::cancelled, "late"))};
  EXPECT_EQ(conversation_.retry(listener_).status.code(), Code::cancelled);
  host_.answers("two");
  EXPECT_TRUE(conversation_.retry(listener_).status.ok());
  EXPECT_EQ(text_of(conversation_.messages()), before + "u:second a:two ");
}

TEST_F(ConversationTest, AFailedRetryBringsTheOldAnswerBack) {
  host_.answers("one");
  conversation_.say("first", listener_);
  const std::string before = text_of(conversation_.messages());
  host_.refuses = Status(Code::busy, "later");
  EXPECT_FALSE(conversation_.retry(listener_).status.ok());
  EXPECT_EQ(text_of(conversation_.messages()), before);
  EXPECT_EQ(conversation_.answers(), 1u);
}

TEST_F(ConversationTest, AnInterruptedAnswerIsKept) {
  host_.events = {tokens("half")};
  host_.cancelled = end(Event::Kind::cancelled, "half", "cancelled",
                        Status(Code::cancelled, "the request was cancelled"));
  listener_.stop = [this] { return !shown_.empty(); };
  const ChatAnswer answer = conversation_.say("first", listener_);
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.result.finish_reason, "cancelled");
  EXPECT_EQ(text_of(conversation_.messages()), "s:be kind u:first a:half ");
}

TEST_F(ConversationTest, OneInterruptedBeforeItsFirstWordIsNot) {
  host_.events = {};
  stop_ = true;
  EXPECT_TRUE(conversation_.say("first", listener_).status.ok());
  EXPECT_EQ(text_of(conversation_.messages()), "s:be kind ");
  EXPECT_TRUE(conversation_.can_retry());
}

TEST_F(ConversationTest, EndsWhenNobodyReads) {
  host_.events = {tokens("a"), tokens("b"), tokens("c")};
  read_ = false;
  conversation_.say("first", listener_);
  EXPECT_EQ(shown_, "a");
}

}  // namespace
}  // namespace drafthouse::cli
