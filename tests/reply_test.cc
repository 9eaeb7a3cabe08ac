// Replies of real pairs: how they split, what ends their thoughts, what a grammar says behind them.

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/answer.h"
#include "engine/internals.h"
#include "tests/host_pairs.h"
#include "text/thought.h"

namespace drafthouse {
namespace {

using test::finish;
using test::make_host;
using Ids = std::vector<std::uint32_t>;

struct Pair {
  std::string target;
  std::string draft;
  std::string begin;  // of a conversation, up to the reply
  std::string think;  // what begins a thought
};

std::vector<Pair> pairs() {
  const std::string question = "<|im_start|>user\nAdd two numbers in Python.<|im_end|>\n";
  std::vector<Pair> all = {{test::nano("target"), test::nano("draft"),
                            question + "<|im_start|>assistant\n", "<think>\n"}};
  const test::PairPaths hybrid = test::pair_paths("nano-qwen3_5");
  all.push_back({hybrid.target, hybrid.draft, all[0].begin, "<think>\n"});
  const test::PairPaths gemma = test::pair_paths("nano-gemma4");
  all.push_back({gemma.target, gemma.draft,
                 "<bos><|turn>user\nAdd two numbers in Python.<turn|>\n<|turn>model\n",
                 "<|channel>thought\n"});
  return all;
}

std::unique_ptr<Engine> load(const Pair& pair, bool draft = true) {
  auto engine = Engine::load({.target = pair.target, .draft = draft ? pair.draft : ""});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return std::move(engine).value();
}

Ids encode(const Engine& engine, const std::string& text) {
  return engine.encode(text, false).value();
}

GenerateRequest thinking(const Engine& engine, const Pair& pair, std::uint32_t budget) {
  GenerateRequest request;
  request.prompt_ids = encode(engine, pair.begin + pair.think);
  request.max_tokens = 40;
  request.ignore_eos = true;
  request.reply.thinking_budget = budget;
  // Small models think briefly: only the budget ends this thought.
  const auto marks = thought_marks(engine.info().reply_format);
  request.sampling.logit_bias = {{encode(engine, std::string(marks->close))[0], -100}};
  return request;
}

ReplyPart take(Answer& answer, const Ids& ids, std::size_t piece) {
  ReplyPart all;
  for (std::size_t at = 0; at < ids.size() && !answer.finished(); at += piece) {
    const AnswerPiece got =
        answer.take(std::span(ids).subspan(at, std::min(piece, ids.size() - at)));
    all.reasoning += got.reply.reasoning;
    all.content += got.reply.content;
    all.calls.insert(all.calls.end(), got.reply.calls.begin(), got.reply.calls.end());
  }
  return all;
}

TEST(Reply, IsSplitByItsIdsHoweverTheyCome) {
  const auto engine = load(pairs()[0]);
  EXPECT_EQ(engine->info().reply_format, ReplyFormat::think);
  const Ids thought = encode(*engine, "\nI see.\n");
  Ids ids = encode(*engine,
                   "<think>\nI see.\n</think>\n\nYes.\n<tool_call>\n{\"name\": \"f\", "
                   "\"arguments\": {\"a\": 1}}\n</tool_call>");
  ids.push_back(engine->info().eos_ids[0]);
  for (const std::size_t piece : {1, 3, 16, 99}) {
    Answer answer(
        engine->internals().tokenizer,
        {.ids = 200, .end_ids = engine->info().eos_ids, .reply = {.format = ReplyFormat::think}});
    const ReplyPart all = take(answer, ids, piece);
    EXPECT_EQ(all.reasoning, "I see.");
    EXPECT_EQ(all.content, "Yes.");
    EXPECT_EQ(all.calls, (std::vector<ToolCall>{{.name = "f", .arguments = R"({"a":1})"}}));
    EXPECT_EQ(answer.finish_reason(), "tool_calls");
    EXPECT_EQ(answer.reasoning_ids(), thought.size());
  }
}

TEST(Reply, AStopStringCutsItWhereTheTextEnds) {
  const auto engine = load(pairs()[0]);
  const Ids ids = encode(*engine, "<think>\nI see.\n</think>\n\nYes, no.<tool_call>");
  for (const std::size_t piece : {1, 4, 99}) {
    const auto answer_until = [&](const std::string& stop) {
      Answer answer(engine->internals().tokenizer,
                    {.ids = 200, .stop = {stop}, .reply = {.format = ReplyFormat::think}});
      const ReplyPart all = take(answer, ids, piece);
      return all.reasoning + "|" + all.content + "|" + answer.finish_reason();
    };
    EXPECT_EQ(answer_until("see"), "I ||stop");
    EXPECT_EQ(answer_until(", n"), "I see.|Yes|stop");
    // Over the end of the thought, which is no text.
    EXPECT_EQ(answer_until("see.\n\n\nYes"), "I ||stop");
  }
}

TEST(ThinkingBudget, EndsAThoughtAfterSoManyIds) {
  for (const Pair& pair : pairs()) {
    const auto engine = load(pair);
    const auto marks = thought_marks(engine->info().reply_format);
    ASSERT_TRUE(marks.has_value()) << pair.target;
    const Ids ending = encode(*engine, std::string(marks->ending));
    const Ids free = engine
                         ->generate([&] {
                           GenerateRequest request = thinking(*engine, pair, 0);
                           request.reply.thinking_budget.reset();
                           return request;
                         }())
                         .value()
                         .ids;
    for (const std::uint32_t budget : {0u, 1u, 7u, 20u}) {
      const GenerateResult result = engine->generate(thinking(*engine, pair, budget)).value();
      ASSERT_GE(result.ids.size(), budget + ending.size());
      EXPECT_EQ(Ids(result.ids.begin(), result.ids.begin() + budget),
                Ids(free.begin(), free.begin() + budget));
      EXPECT_EQ(Ids(result.ids.begin() + budget, result.ids.begin() + budget + ending.size()),
                ending)
          << pair.target << " budget " << budget;
      EXPECT_FALSE(result.reply.content.empty());
      EXPECT_LE(result.reasoning_tokens, budget);
    }
  }
}

TEST(ThinkingBudget, IdsAreTheSameForEveryWidthAndWithoutADraft) {
  for (const Pair& pair : pairs()) {
    const auto with = load(pair);
    const auto without = load(pair, false);
    for (const bool draws : {false, true}) {
      for (const std::uint32_t budget : {0u, 9u}) {
        GenerateRequest request = thinking(*with, pair, budget);
        if (draws) {
          request.sampling.temperature = 0.9f;
          request.sampling.top_p = 0.95f;
          request.sampling.seed = 11;
          request.n = 2;
        }
        request.stop = {"zzzz"};
        const GenerateResult plain = without->generate(request).value();
        for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
          request.width = width;
          const GenerateResult result = with->generate(request).value();
          EXPECT_EQ(result.ids, plain.ids) << pair.target << ' ' << budget << " width " << width;
          EXPECT_EQ(result.reply.reasoning, plain.reply.reasoning);
          EXPECT_EQ(result.reply.content, plain.reply.content);
          EXPECT_EQ(result.reasoning_tokens, plain.reasoning_tokens);
          ASSERT_EQ(result.more.size(), plain.more.size());
          for (std::size_t i = 0; i < plain.more.size(); ++i) {
            EXPECT_EQ(result.more[i].ids, plain.more[i].ids);
          }
        }
      }
    }
  }
}

TEST(ThinkingBudget, IdsAreTheSameBesideOthers) {
  const Pair pair = pairs()[0];
  const auto engine = load(pair, false);
  auto host = make_host();
  ASSERT_TRUE(host->load(test::nano_spec("nano")).ok());
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<Ids> expected;
  for (const std::uint32_t budget : {0u, 3u, 9u, 16u, 30u}) {
    const GenerateRequest alone = thinking(*engine, pair, budget);
    expected.push_back(engine->generate(alone).value().ids);
    SubmitRequest request = test::request("nano", alone.prompt_ids, 40, budget % 2 == 0 ? 0 : 16);
    request.reply.thinking_budget = budget;
    request.sampling = alone.sampling;
    streams.push_back(host->submit(request).value());
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    ReplyPart told;
    Event last;
    while (auto event = streams[i]->next(60)) {
      told.reasoning += event->reply.reasoning;
      told.content += event->reply.content;
      last = std::move(*event);
    }
    EXPECT_EQ(last.result.ids, expected[i]);
    EXPECT_EQ(told.reasoning, last.result.reply.reasoning);
    EXPECT_EQ(told.content, last.result.reply.content);
  }
}

TEST(ThinkingBudget, MaxTokensEndsItFirst) {
  const Pair pair = pairs()[0];
  const auto engine = load(pair);
  GenerateRequest request = thinking(*engine, pair, 10);
  request.max_tokens = 11;
  const GenerateResult result = engine->generate(request).value();
  EXPECT_EQ(result.ids.size(), 11u);
  EXPECT_EQ(result.finish_reason, "length");
  EXPECT_EQ(result.reply.content, "");
  EXPECT_LE(result.reasoning_tokens, 10u);
}

TEST(ThinkingBudget, IsRefusedWhereNothingIsThought) {
  const auto engine = load(pairs()[0]);
  GenerateRequest request = thinking(*engine, pairs()[0], 4);
  request.reply.format = ReplyFormat::llama;
  const Status status = engine->generate(request).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("thinking_budget"), std::string::npos) << status.message();
  // An id that its end needs must be allowed.
  request = thinking(*engine, pairs()[0], 4);
  request.sampling.ban_ids = encode(*engine, "</think>");
  EXPECT_EQ(engine->generate(request).status().code(), Code::invalid_argument);
}

bool is_json(const std::string& text) { return nlohmann::json::accept(text); }

TEST(GrammarAndThoughts, TheGrammarBeginsBehindTheThought) {
  for (const Pair& pair : pairs()) {
    const auto with = load(pair);
    const auto without = load(pair, false);
    for (const std::uint32_t seed : {1u, 2u}) {
      GenerateRequest request = thinking(*with, pair, 6 + seed);
      request.ignore_eos = false;
      request.max_tokens = 200;
      request.sampling.temperature = 1;
      request.sampling.seed = seed;
      request.grammar = {
          GrammarForm::json_schema,
          R"({"type": "object", "properties": {"a": {"type": "integer", "maximum": 99},
                         "b": {"enum": ["x", "y"]}}, "required": ["a", "b"],
                         "additionalProperties": false})"};
      const GenerateResult plain = without->generate(request).value();
      EXPECT_TRUE(is_json(plain.reply.content)) << plain.text;
      EXPECT_FALSE(plain.reply.reasoning.empty());
      for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
        request.width = width;
        EXPECT_EQ(with->generate(request).value().ids, plain.ids) << pair.target << ' ' << width;
      }
    }
  }
}

// At a reply's beginning the model chooses: a thought or the answer.
TEST(GrammarAndThoughts, AReplyMayBeginWithAThoughtOrNot) {
  const Pair pair = pairs()[0];
  const auto engine = load(pair);
  GenerateRequest request = thinking(*engine, pair, 5);
  request.prompt_ids = encode(*engine, pair.begin);
  request.ignore_eos = false;
  request.grammar = {GrammarForm::regex, "[0-9]{3}"};
  const std::uint32_t open = encode(*engine, "<think>")[0];
  for (const std::uint32_t width : {1u, 16u}) {
    request.width = width;
    request.sampling.logit_bias = {{open, -100}};
    const GenerateResult answers = engine->generate(request).value();
    EXPECT_EQ(answers.reply.content.size(), 3u) << answers.text;
    EXPECT_EQ(answers.reply.reasoning, "");
    request.sampling.logit_bias = {{open, 100}};
    const GenerateResult thinks = engine->generate(request).value();
    EXPECT_EQ(thinks.ids[0], open);
    EXPECT_EQ(thinks.reasoning_tokens, 5u);
    EXPECT_EQ(thinks.reply.content.size(), 3u) << thinks.text;
  }
  // Not where a thought has been and gone, nor in a text that is no conversation.
  for (const std::string& begin :
       {pair.begin + "<think>\n\n</think>\n\n", std::string("Count: ")}) {
    request.prompt_ids = encode(*engine, begin);
    EXPECT_EQ(engine->generate(request).value().text.size(), 3u);
  }
}

TEST(HostReply, TemplateOptionsToolsAndResultsGoIntoThePrompt) {
  const auto engine = load(pairs()[0], false);
  const std::vector<ChatTurn> question = {{"user", "Hi"}};
  const auto text = [&](const std::vector<ChatTurn>& messages, const ChatOptions& options) {
    return engine->decode(engine->encode_chat(messages, options).value(), false).value();
  };
  EXPECT_TRUE(text(question, {}).ends_with("<think>\n\n</think>\n\n"));
  EXPECT_TRUE(
      text(question, {.variables = R"({"enable_thinking": true})"}).ends_with("assistant\n"));
  ChatTurn called{"assistant", "", "hm"};
  called.calls = {{.name = "f", .arguments = R"({"a": 1})"}};
  const std::string whole = text({{"user", "Hi"}, called, {"tool", "4"}},
                                 {.tools = R"([{"type": "function", "function": {"name": "f"}}])"});
  EXPECT_NE(whole.find(R"(<tools>)"), std::string::npos) << whole;
  EXPECT_NE(whole.find(R"({"name": "f", "arguments": {"a": 1}})"), std::string::npos) << whole;
  EXPECT_NE(whole.find("<tool_response>\n4\n</tool_response>"), std::string::npos) << whole;
}

TEST(HostReply, WrongRequestsAreRefusedWithTheirPlace) {
  auto host = make_host();
  ASSERT_TRUE(host->load(test::nano_spec("nano")).ok());
  const auto refused = [&](const std::function<void(SubmitRequest&)>& change,
                           const std::string& part) {
    SubmitRequest request;
    request.model = "nano";
    request.messages = {{"user", "Hi"}};
    request.max_tokens = 2;
    change(request);
    auto stream = host->submit(request);
    const Status status = stream.ok() ? finish(*stream.value()).status : stream.status();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    return status.code();
  };
  const auto invalid = Code::invalid_argument;
  EXPECT_EQ(refused([](auto& r) { r.messages[0].content = "ab\xff"; },
                    "messages[0].content: byte 0xff at offset 2"),
            invalid);
  EXPECT_EQ(refused([](auto& r) { r.stop = {"a", "b\xc3"}; }, "stop[1]: byte 0xc3 at offset 1"),
            invalid);
  EXPECT_EQ(refused(
                [](auto& r) {
                  r.messages.clear();
                  r.prompt = "\xed\xa0\x80";
                },
                "prompt: byte 0xed at offset 0"),
            invalid);
  EXPECT_EQ(refused([](auto& r) { r.chat.variables = "[1]"; }, "template options"), invalid);
  EXPECT_EQ(refused([](auto& r) { r.chat.tools = "[{}]"; }, "tools[0].name"), invalid);
  EXPECT_EQ(refused([](auto& r) { r.reply.tools = "{"; }, "tools: not JSON at byte"), invalid);
  EXPECT_EQ(refused([](auto& r) { r.chat.variables = R"({"reasoning_effort": "high"})"; },
                    "\"reasoning_effort\""),
            Code::unsupported);
  EXPECT_EQ(refused([](auto& r) { r.chat.documents = "[{}]"; }, "\"documents\""),
            Code::unsupported);
  EXPECT_EQ(refused(
                [](auto& r) {
                  r.messages.clear();
                  r.prompt = "Hi";
                  r.chat.variables = "{}";
                },
                "only messages"),
            invalid);
}

}  // namespace
}  // namespace drafthouse
