#include "text/reply_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace drafthouse {
namespace {

void add(ReplyPart& all, const ReplyPart& more) {
  all.reasoning += more.reasoning;
  all.content += more.content;
  all.calls.insert(all.calls.end(), more.calls.begin(), more.calls.end());
}

// Fed whole, in pieces of 1, 3 and 16 bytes and of random sizes: always the same.
ReplyPart parse(const ReplyParser::Options& options, const std::string& text) {
  ReplyPart whole;
  std::mt19937 random(1);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{99}}) {
    ReplyParser parser(options);
    ReplyPart joined;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t piece = size == 0 ? text.size() : size == 99 ? 1 + random() % 9 : size;
      add(joined, parser.push(std::string_view(text).substr(at, piece)));
      at += piece;
    }
    add(joined, parser.finish());
    if (size == 0) whole = joined;
    EXPECT_EQ(joined.reasoning, whole.reasoning) << "pieces of " << size;
    EXPECT_EQ(joined.content, whole.content) << "pieces of " << size;
    EXPECT_EQ(joined.calls, whole.calls) << "pieces of " << size;
  }
  return whole;
}

constexpr char kTools[] =
    R"([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
  "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"},
                 "tags": {"type": "array"}}}}}])";

TEST(ReplyParser, PlainTextPassesAsItIs) {
  const ReplyPart part = parse({}, "\n<think>a</think> <tool_call>\n\n");
  EXPECT_EQ(part.content, "\n<think>a</think> <tool_call>\n\n");
  EXPECT_TRUE(part.reasoning.empty());
}

TEST(ReplyParser, ThoughtsAreSplitFromTheAnswer) {
  const ReplyParser::Options think{.format = ReplyFormat::think};
  ReplyPart part =
      parse(think, "<think>\nFirst.\n\nThen < this.\n</think>\n\nThe answer\nis 4 < 5.\n");
  EXPECT_EQ(part.reasoning, "First.\n\nThen < this.");
  EXPECT_EQ(part.content, "The answer\nis 4 < 5.\n");
  part = parse(think, "<think>\n\n</think>\n\nYes.");
  EXPECT_EQ(part.reasoning, "");
  EXPECT_EQ(part.content, "Yes.");
  part = parse(think, "No thought <thin> at all </think>");
  EXPECT_EQ(part.content, "No thought <thin> at all </think>") << "there was none to end";
  // The template has opened the thought.
  part = parse({.format = ReplyFormat::think, .in_reasoning = true}, "Hm.\n</think>\n\nYes.");
  EXPECT_EQ(part.reasoning, "Hm.");
  EXPECT_EQ(part.content, "Yes.");
  part = parse({.format = ReplyFormat::think, .in_reasoning = true}, "It goes on and");
  EXPECT_EQ(part.reasoning, "It goes on and") << "cut by the limit";
  EXPECT_EQ(part.content, "");
}

TEST(ReplyParser, QwenCallsInJson) {
  const ReplyParser::Options think{.format = ReplyFormat::think};
  const ReplyPart part = parse(
      think,
      "Let me look.\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln {\", "
      "\"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
      "{}}\n</tool_call>");
  EXPECT_EQ(part.content, "Let me look.");
  ASSERT_EQ(part.calls.size(), 2u);
  EXPECT_EQ(part.calls[0], (ToolCall{"weather", R"({"city":"Köln {","days":2})"}));
  EXPECT_EQ(part.calls[1], (ToolCall{"now", "{}"}));
}

TEST(ReplyParser, QwenCallsInXmlHaveTheDeclaredTypes) {
  const ReplyParser::Options think{.format = ReplyFormat::think, .tools_json = kTools};
  const ReplyPart part = parse(think,
                               "<tool_call>\n<function=weather>\n<parameter=city>\n42\n</"
                               "parameter>\n<parameter=days>\n 3 \n</parameter>\n"
                               "<parameter=metric>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\", "
                               "1]\n</parameter>\n<parameter=other>\n7\n"
                               "</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0].arguments,
            R"({"city":"42","days":3,"metric":true,"tags":["a",1],"other":"7"})");
  // A value keeps inner newlines; the end of text closes what is open.
  const ReplyPart open =
      parse(think, "<tool_call>\n<function=weather>\n<parameter=city>\na\n\nb\n</parameter>\n");
  ASSERT_EQ(open.calls.size(), 1u);
  EXPECT_EQ(open.calls[0].arguments, R"({"city":"a\n\nb"})");
  const ReplyPart wrong = parse(think,
                                "<tool_call>\n<function=weather>\n<parameter=days>\nsoon\n</"
                                "parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(wrong.calls.size(), 1u);
  EXPECT_EQ(wrong.calls[0].arguments, R"({"days":"soon"})") << "what does not fit stays text";
}

TEST(ReplyParser, WhatIsNoCallIsContent) {
  const ReplyParser::Options think{.format = ReplyFormat::think};
  for (const std::string body : {"{\"name\": 3}", "{\"name\": \"a\", \"arguments\": [1]}",
                                 "{\"name\": \"a\"", "hello", ""}) {
    const std::string text = "See <tool_call>" + body + "</tool_call> there";
    const ReplyPart part = parse(think, text);
    EXPECT_EQ(part.content, text);
    EXPECT_TRUE(part.calls.empty());
  }
}

TEST(ReplyParser, Gemma) {
  const ReplyParser::Options gemma{.format = ReplyFormat::gemma};
  const ReplyPart part = parse(
      gemma,
      "<|channel>thought\nIt may rain.\n<channel|>I ask.<|tool_call>call:weather{city:<|\"|>Rome, "
      "{IT}<|\"|>,days:2,deep:{list:[1,-2.5,true,null],x:<|\"|><|\"|>}}<tool_call|><|tool_"
      "response>");
  EXPECT_EQ(part.reasoning, "It may rain.");
  EXPECT_EQ(part.content, "I ask.");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0].name, "weather");
  EXPECT_EQ(part.calls[0].arguments,
            R"({"city":"Rome, {IT}","days":2,"deep":{"list":[1,-2.5,true,null],"x":""}})");
  EXPECT_EQ(parse(gemma, "<|channel>thought\n<channel|>Hi").content, "Hi");
}

TEST(ReplyParser, Harmony) {
  const ReplyParser::Options harmony{.format = ReplyFormat::harmony};
  ReplyPart part = parse(harmony,
                         "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>"
                         "final<|message|>Four.<|return|>");
  EXPECT_EQ(part.reasoning, "Simple.");
  EXPECT_EQ(part.content, "Four.");
  part = parse(harmony,
               "<|channel|>analysis<|message|>Ask.<|end|><|start|>assistant<|channel|>commentary "
               "to=functions.weather "
               "<|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0], (ToolCall{"weather", "{\"city\": \"Oslo\"}"}));
  EXPECT_EQ(part.content, "");
  part = parse(harmony, "No channels here");
  EXPECT_EQ(part.content, "No channels here");
  part = parse(harmony, std::string(2000, 'x'));
  EXPECT_EQ(part.content, std::string(2000, 'x'));
  part = parse(harmony, "<|channel|>ana");
  EXPECT_EQ(part.content + part.reasoning, "") << "cut inside a header";
}

TEST(ReplyParser, LlamaAndLfm2) {
  const ReplyParser::Options llama{.format = ReplyFormat::llama, .tools_json = kTools};
  ReplyPart part = parse(llama, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}");
  ASSERT_EQ(part.calls.size(), 1u);
  EXPECT_EQ(part.calls[0], (ToolCall{"weather", R"({"city":"Rome"})"}));
  part = parse(llama,
               "<|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", "
               "\"parameters\": {}}<|eom_id|>");
  EXPECT_EQ(part.calls.size(), 2u);
  part = parse(llama, "{\"name\" is a JSON key} I think");
  EXPECT_EQ(part.content, "{\"name\" is a JSON key} I think");
  part = parse({.format = ReplyFormat::llama}, "{\"name\": \"weather\", \"parameters\": {}}");
  EXPECT_TRUE(part.calls.empty()) << "no tool was offered";

  part = parse({.format = ReplyFormat::lfm2},
               "<|tool_call_start|>[weather(city='L\\'Aquila', days=2, deep={\"a\": [True, "
               "None]}), now()]<|tool_call_end|>Done.");
  ASSERT_EQ(part.calls.size(), 2u);
  EXPECT_EQ(part.calls[0].arguments, R"({"city":"L'Aquila","days":2,"deep":{"a":[true,null]}})");
  EXPECT_EQ(part.calls[1], (ToolCall{"now", "{}"}));
  EXPECT_EQ(part.content, "Done.");
}

TEST(ReplyParser, NestedWithoutEndIsContent) {
  for (const char open : {'{', '['}) {
    const std::string body(5000, open);
    const ReplyPart gemma = parse({.format = ReplyFormat::gemma}, "<|tool_call>call:a{x:" + body);
    EXPECT_TRUE(gemma.calls.empty());
    const std::string closed = body + std::string(5000, open == '{' ? '}' : ']');
    for (const std::string& text : {"{\"name\": \"a\", \"arguments\": {\"x\": " + closed + "}}",
                                    "{\"name\": \"a\", \"arguments\": \"" + closed + "\"}"}) {
      EXPECT_TRUE(parse({.format = ReplyFormat::think}, "<tool_call>" + text).calls.empty());
    }
    const ReplyPart typed = parse({.format = ReplyFormat::think, .tools_json = kTools},
                                  "<tool_call><function=weather><parameter=tags>" + closed);
    ASSERT_EQ(typed.calls.size(), 1u) << "too deep for a list: a string";
    EXPECT_EQ(typed.calls[0].arguments.size(), closed.size() + 11);
    const ReplyPart python =
        parse({.format = ReplyFormat::lfm2}, "<|tool_call_start|>[a(x=" + body);
    EXPECT_TRUE(python.calls.empty());
    EXPECT_EQ(python.content.size(), body.size() + 24);
  }
}

TEST(ReplyParser, FormatAndOpenThoughtComeFromTheTemplate) {
  EXPECT_EQ(reply_format_of("{% if x %}<|channel|>analysis<|message|>"), ReplyFormat::harmony);
  EXPECT_EQ(reply_format_of("'<|channel>thought\n<channel|>'"), ReplyFormat::gemma);
  EXPECT_EQ(reply_format_of("<|im_start|><tool_call><think>"), ReplyFormat::think);
  EXPECT_EQ(reply_format_of("<|python_tag|>"), ReplyFormat::llama);
  EXPECT_EQ(reply_format_of("<|tool_call_start|>"), ReplyFormat::lfm2);
  EXPECT_EQ(reply_format_of("<|im_start|>"), ReplyFormat::plain);
  EXPECT_TRUE(ends_in_reasoning(ReplyFormat::think, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(
      ends_in_reasoning(ReplyFormat::think, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(
      ends_in_reasoning(ReplyFormat::think, "say <think> now<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_TRUE(ends_in_reasoning(ReplyFormat::gemma, "<|channel>thought\n"));
}

// Any text: nothing is lost but markers and newlines beside them.
TEST(ReplyParser, RandomTextsSplitTheSameHoweverTheyAreCut) {
  const std::vector<std::string> pieces = {"<think>",
                                           "</think>",
                                           "<tool_call>",
                                           "</tool_call>",
                                           "<|channel>thought",
                                           "<channel|>",
                                           "<|tool_call>",
                                           "<tool_call|>",
                                           "<|channel|>",
                                           "<|message|>",
                                           "<|end|>",
                                           "<|start|>",
                                           "analysis",
                                           "to=functions.f",
                                           "{\"name\": \"a\", \"arguments\": {}}",
                                           "call:a{}",
                                           "[a()]",
                                           "<|tool_call_start|>",
                                           "<|tool_call_end|>",
                                           "<|python_tag|>",
                                           "\n",
                                           "<",
                                           "text ",
                                           "<|"};
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (std::size_t i = random() % 14; i > 0; --i) text += pieces[random() % pieces.size()];
    for (const ReplyFormat format : {ReplyFormat::think, ReplyFormat::gemma, ReplyFormat::harmony,
                                     ReplyFormat::llama, ReplyFormat::lfm2}) {
      SCOPED_TRACE(std::string(name_of(format)) + ": " + text);
      parse({.format = format, .in_reasoning = random() % 4 == 0, .tools_json = kTools}, text);
    }
  }
}

}  // namespace
}  // namespace drafthouse
