#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "text/test_data.h"

namespace drafthouse {
namespace {

using Messages = std::vector<ChatMessage>;

Result<std::shared_ptr<const ChatTemplate>> compile(const std::string& text) {
  TokenizerSource source;
  source.template_origin = "test.jinja";
  source.chat_template = text;
  source.bos_token = "<s>";
  source.tokenizer_config_json = R"({"pad_token": {"content": "<pad>"}, "unk_token": null})";
  return ChatTemplate::create(source);
}

std::string render(const std::string& text, const std::string& options = "",
                   const Messages& messages = {{"user", "Hi <b>"}}) {
  const auto made = compile(text);
  if (!made.ok()) return "compile: " + made.status().message();
  const auto out = made.value()->render(messages, true, {.variables = options});
  return out.ok() ? out.value() : "render: " + out.status().message();
}

TEST(ChatTemplate, ChatMl) {
  const std::string chatml =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  EXPECT_EQ(render(chatml), "<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(compile(chatml).value()->end_of_turn(), "<|im_end|>");
  EXPECT_EQ(compile(chatml).value()->render({}, false, {}).value(), "");
}

TEST(ChatTemplate, ErrorsNameTheFileOfTheTemplate) {
  EXPECT_TRUE(compile("{% if %}").status().message().starts_with("test.jinja: chat template: "));
  EXPECT_TRUE(render("{{ 1 / 0 }}").starts_with("render: test.jinja: chat template: "));
}

TEST(ChatTemplate, AnEmptyOneSaysWhereItStands) {
  for (const char* source : {"", " ", "\r\n\t "}) {
    EXPECT_EQ(compile(source).value()->usable().code(), Code::unsupported);
    EXPECT_EQ(
        render(source),
        "render: test.jinja: chat template is empty, so no conversation becomes a prompt; put "
        "the model's own template there, or prompt with raw text");
  }
  EXPECT_TRUE(compile("{{ '' }}").value()->usable().ok());
}

TEST(ChatTemplate, EndOfTurnIsEmptyWhenUnclear) {
  EXPECT_EQ(compile("{{ messages[-1].content }}").value()->end_of_turn(), "");
  EXPECT_EQ(compile("nothing").value()->end_of_turn(), "");
  EXPECT_EQ(compile("{{ raise_exception('no') }}").value()->end_of_turn(), "");
  EXPECT_EQ(compile("{{ messages[-1].content }} </s>").value()->end_of_turn(), "</s>");
  EXPECT_EQ(compile("{{ messages[-1].content }}<e><f>\n").value()->end_of_turn(), "<e>");
  EXPECT_EQ(compile("{{ messages[-1].content }}\nUser:").value()->end_of_turn(), "");
}

// What transformers' environment prints for the same text.
TEST(ChatTemplate, BehavesLikeTransformers) {
  const struct {
    const char* source;
    const char* expected;
  } cases[] = {
      {"{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"},
      {"{{ bos_token }}{{ pad_token }}{{ unk_token }}{{ eos_token }}|", "<s><pad>|"},
      {"{{ messages | tojson }}", "[{\"role\": \"user\", \"content\": \"Hi <b>\"}]"},
      {"{{ {'b': [1, 2.0, none, true], 'a': '\xC3\xA9\"\\n'} | tojson }}",
       "{\"b\": [1, 2.0, null, true], \"a\": \"\xC3\xA9\\\"\\n\"}"},
      {"{{ {'b': [1, {}], 'a': []} | tojson(indent=2) }}",
       "{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}"},
      {"{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
       "{\"a\":2,\"b\":1}"},
      {"{{ [1.5e-7, 1e16, 100000.0] | tojson }}", "[1.5e-07, 1e+16, 100000.0]"},
      {"{{ none }} {{ true }} {{ 1.0 }} {{ ['a', 1] }} {{ {'k': none} }}",
       "None True 1.0 ['a', 1] {'k': None}"},
      {"{{ tools is none }}{{ documents is none }}{{ tool is defined }}", "TrueTrueFalse"},
      {"{{ missing }}{% if missing %}x{% endif %}{% for a in missing %}x{% endfor %}|", "|"},
      {"{% for c in [1,2,3,4] %}{% if c == 2 %}{% continue %}{% endif %}{% if c == 4 %}{% break %}"
       "{% endif %}{{ c }}{% endfor %}",
       "13"},
      {"{% for c in ['a', 'b', 'c'] %}{{ loop.previtem }}{{ loop.index0 }}{{ loop.nextitem }}{{ "
       "loop.last }} "
       "{% endfor %}",
       "0bFalse a1cFalse b2True "},
      {"{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}"
       "{{ ns.n }}",
       "4"},
      {"{% macro f(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "1x12"},
      {"{{ [1,2,3][::-1] }}{{ 'abc'[::-1] }}{{ [1,2,3][1:] }}{{ 'abcd'[:-1] }}",
       "[3, 2, 1]cba[2, 3]abc"},
      {"{{ ' a '.strip() }}{{ '\\na\\n'.lstrip('\\n') }}{{ 'xa'.rstrip('a') }}", "aa\nx"},
      {"{{ 'a,b'.split(',')[-1] }}{{ 'ab'.startswith('a') }}{{ 'ab'.endswith('a') }}",
       "bTrueFalse"},
      {"{{ 'ab'.replace('a', 'c').upper() }}{{ {'a': 1}.get('b', 2) }}", "CB2"},
      {"{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "b1a2"},
      {"{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{{ v }}{% endfor %}", "a2b1"},
      {"{% for k, v in {'b': 1, 'a': 2} | items %}{{ k }}{{ v }}{% endfor %}", "b1a2"},
      {"{{ 'a' ~ 1 ~ none ~ true }}{{ 'x' in 'axb' }}{{ 'x' not in ['x'] }}",
       "a1NoneTrueTrueFalse"},
      {"{{ 'a' is string }}{{ 'a' is sequence }}{{ {} is mapping }}{{ {} is sequence }}"
       "{{ [] is iterable }}{{ 1 is boolean }}{{ true is boolean }}{{ false is false }}",
       "TrueTrueTrueTrueTrueFalseTrueTrue"},
      {"{% generation %}a{% endgeneration %}{%- generation -%} b {%- endgeneration -%} c", "abc"},
      {"{{ ['b', 'a'] | map('upper') | join('-') }}{{ ' x ' | trim }}{{ 'x' | default('y') }}",
       "B-Axx"},
      {"{{ strftime_now('%Y') | length }}", "4"},
      {"{{ 'a=b'.partition('=')[2] }}{{ 'prefix'.removeprefix('pre') }}", "bfix"},
      {"{{ messages[0].reasoning is defined }}{{ messages[0]['content'] | length }}", "False6"},
      {"{{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ -7 % 3 }}", "3 3.5 8 2"},
      {"a\n", "a"},
  };
  for (const auto& c : cases) EXPECT_EQ(render(c.source), c.expected) << c.source;
}

TEST(ChatTemplate, OptionsKeepTheirOrder) {
  EXPECT_EQ(
      render("{{ schema | tojson }}", R"({"schema": [{"z": 1, "a": {"y": 2, "b": "\u00e9<"}}]})"),
      "[{\"z\": 1, \"a\": {\"y\": 2, \"b\": \"\xC3\xA9<\"}}]");
  EXPECT_EQ(render("{{ messages | length }}{{ enable_thinking }}", R"({"enable_thinking": false})"),
            "1False");
  const auto made =
      compile("{% for t in tools %}{{ t | tojson }}{% endfor %}{{ documents[0].text }}").value();
  const ChatOptions both{.tools = R"([{"type": "function", "function": {"name": "f"}}])",
                         .documents = R"([{"text": "T"}])"};
  EXPECT_EQ(made->render({}, true, both).value(),
            R"({"type": "function", "function": {"name": "f"}}T)");
}

TEST(ChatTemplate, WrongOptionsAreRefusedWithTheirPlace) {
  const auto made = compile("{{ tools }}{{ documents }}{{ a }} plain word b{# c #}").value();
  const std::string deep(100000, '[');
  const struct {
    ChatOptions options;
    Code code;
    const char* part;
  } cases[] = {
      {{.variables = "{"}, Code::invalid_argument, "template options: not JSON at byte 2"},
      {{.variables = "[]"}, Code::invalid_argument, "not an object"},
      {{.variables = "1"}, Code::invalid_argument, "not an object"},
      {{.variables = deep}, Code::invalid_argument, "stand inside each other"},
      {{.variables = R"({"messages": []})"}, Code::invalid_argument, "\"messages\""},
      {{.variables = R"({"b": 1})"}, Code::unsupported, "\"b\""},
      {{.variables = R"({"aa": 1})"}, Code::unsupported, "\"aa\""},
      {{.tools = "{}"}, Code::invalid_argument, "tools: is a JSON object"},
      {{.tools = "[1]"}, Code::invalid_argument, "tools[0]"},
      {{.tools = R"([{"name": "f"}, {"function": {}}])"},
       Code::invalid_argument,
       "tools[1].function.name"},
      {{.tools = R"([{"type": "web_search"}])"}, Code::invalid_argument, "tools[0].type"},
      {{.tools = R"([{"name": "f", "parameters": []}])"},
       Code::invalid_argument,
       "tools[0].parameters"},
      {{.documents = "[[]]"}, Code::invalid_argument, "documents[0]"},
      {{.documents = "{"}, Code::invalid_argument, "documents: not JSON"},
      // The JSON library cannot hold them.
      {{.variables = R"({"a": 1e999})"},
       Code::invalid_argument,
       "template options: holds a number"},
      {{.tools = "[1e999]"}, Code::invalid_argument, "tools: holds a number"},
      {{.documents = R"([{"a": -1e999}])"}, Code::invalid_argument, "documents: holds a number"},
  };
  for (const auto& c : cases) {
    const auto out = made->render({}, true, c.options);
    ASSERT_FALSE(out.ok()) << c.part;
    EXPECT_EQ(out.status().code(), c.code) << out.status().message();
    EXPECT_NE(out.status().message().find(c.part), std::string::npos) << out.status().message();
  }
  EXPECT_TRUE(made->render({}, true, {.variables = R"({"a": 1})"}).ok());
}

TEST(ChatTemplate, MessagesHoldThoughtsCallsAndResults) {
  const auto made = compile("{{ messages | tojson }}").value();
  ChatMessage call{.role = "assistant", .content = "", .reasoning = "hm"};
  call.calls = {{.name = "f", .arguments = R"({"z": 1, "a": [2]})", .id = "c1"}};
  const ChatMessage result{.role = "tool", .content = "4", .call_id = "c1", .name = "f"};
  EXPECT_EQ(made->render(Messages{call, result}, true, {}).value(),
            R"([{"role": "assistant", "content": "", "reasoning_content": "hm", "thinking": "hm", )"
            R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )"
            R"({"z": 1, "a": [2]}}, "id": "c1"}]}, {"role": "tool", "content": "4", )"
            R"("tool_call_id": "c1", "name": "f"}])");
  for (const char* bad : {"", "[]", "{", "1"}) {
    call.calls[0].arguments = bad;
    const auto out = made->render(Messages{result, call}, true, {});
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.status().message().find("messages[1].calls[0].arguments"), std::string::npos);
  }
}

TEST(ChatTemplate, MessagesMayHoldAnyBytes) {
  const std::string content("\0\xFF{{ x }}\"\n", 11);
  EXPECT_EQ(render("{{ messages[0].content }}", "", {{"user", content}}),
            std::string("\0\xEF\xBF\xBD{{ x }}\"\n", 13));
}

TEST(ChatTemplate, ErrorsSayWhoIsToBlame) {
  auto made = compile("{% if %}");
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::corrupt);
  EXPECT_EQ(ChatTemplate::create(TokenizerSource{}).status().code(), Code::not_found);

  auto out = compile("{{ raise_exception('roles must alternate') }}").value()->render({}, true, {});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), Code::invalid_argument);
  EXPECT_NE(out.status().message().find("roles must alternate"), std::string::npos);

  out = compile("{{ 'a'.frobnicate() }}").value()->render({}, true, {});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.status().code(), Code::unsupported);
  EXPECT_NE(out.status().message().find("frobnicate"), std::string::npos);
  EXPECT_EQ(out.status().message().find('\n'), std::string::npos);

  out = compile("{{ missing.field }}").value()->render({}, true, {});
  EXPECT_FALSE(out.ok()) << "as in Jinja: an attribute of something undefined";
}

TEST(ChatTemplate, HostileTemplatesEndSoon) {
  const std::string grow = "{% set n = namespace(x='ab') %}{% for i in range(60) %}";
  const std::string list = "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}";
  const std::string nest =
      "{% set n = namespace(x=[]) %}{% for i in range(90000) %}{% for j in range(90000) %}"
      "{% set n.x = [n.x] %}{% endfor %}{% endfor %}";
  const std::string some_nesting =
      "{% set n = namespace(x=[]) %}{% for i in range(45000) %}{% set n.x = [n.x] %}{% endfor %}";
  const std::string sources[] = {
      "{% for i in range(1000000000) %}x{% endfor %}",
      "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 1000000000 }}",
      "{{ ('x' * 1000000) * 1000000 }}",
      "{{ [1] * 100000000 }}",
      "{{ 'x' | indent(1000000000) }}",
      "{{ '%1000000000d' | format(1) }}",
      "{{ '{:1000000000}'.format(1) }}",
      "{{ 'x'.replace('', 'y' * 10000).replace('', 'y' * 10000) }}",
      "{{ (['x' * 10000] * 10000) | join }}",
      "{{ 10 ** 1000000000 }}",
      "{{ 'x'.center(1000000000) }}",
      "{{ range(1000000000) | list }}",
      "{{ [1, 2] | batch(1000000000, 0) }}",
      "{{ strftime_now('%1000000000Y') }}",
      grow + "{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
      grow + "{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
      grow + "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}{{ n.x }}",
      list + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
      list + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
      list + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x ~ 'a' }}",
      list + "{% set n.y = [n.y, n.y] %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x == n.y }}",
      list + "{% set n.x = n.x + n.x %}{% endfor %}{{ n.x | length }}",
      nest,
      some_nesting + "{{ n.x | tojson }}",
      "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('ab') }}",
      "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f('ab') }}",
      "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% include 'chat' %}",
      "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}",
      "{{ " + std::string(100000, '[') + "1" + std::string(100000, ']') + " }}",
      "{{ 1" + std::string(100000, '+') + "1 }}",
  };
  for (const std::string& source : sources) {
    const auto begin = std::chrono::steady_clock::now();
    const auto made = compile(source);
    const bool rendered = made.ok() && made.value()->render(Messages{{"user", "x"}}, true, {}).ok();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_FALSE(rendered) << source.substr(0, 200);
    // Their limit is one second of processor time; the machine may be busy.
    EXPECT_LT(taken.count(), 60.0) << source.substr(0, 200);
  }
}

// Harmless in the end, but they must not overflow a stack on the way.
TEST(ChatTemplate, DeepValuesAreComparedPrintedAndFreed) {
  const std::string nest =
      "{% set n = namespace(x=[], y=[]) %}{% for i in range(30000) %}{% set n.x = [n.x] %}"
      "{% set n.y = [n.y] %}{% endfor %}";
  for (const char* use : {"", "{{ n.x == n.y }}", "{{ n.x }}", "{{ n.x ~ 'a' }}", "{{ n.x < n.y }}",
                          "{{ {n.x: 1} }}", "{{ n.x in [n.y] }}", "{{ [n.x, n.y] | unique }}",
                          "{{ [n.x, n.y] | sort }}", "{{ n.x | string | length }}"}) {
    const auto made = compile(nest + use);
    ASSERT_TRUE(made.ok());
    (void)made.value()->render({}, true, {});
  }
}

TEST(ChatTemplate, ManyThreadsRenderAtOnce) {
  const auto made = compile("{% for m in messages %}{{ m.content }}{% endfor %}").value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&made, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string word = std::to_string(t * 1000 + i);
        EXPECT_EQ(made->render(Messages{{"user", word}}, true, {}).value(), word);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChatTemplate, LongConversationsHaveEnoughFuel) {
  const auto made = compile(
      "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim + '</>' }}{% endfor %}");
  Messages messages;
  for (int i = 0; i < 20000; ++i) messages.push_back({"user", "a few words in each message"});
  const auto many = made.value()->render(messages, true, {});
  EXPECT_TRUE(many.ok()) << many.status().message();
  const auto big = made.value()->render(Messages{{"user", std::string(20u << 20, 'x')}}, true, {});
  EXPECT_TRUE(big.ok()) << big.status().message();
}

TEST(ChatTemplate, Qwen3) {
  const auto folder = test::model_folder("nano-qwen3");
  if (!folder) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA has no models/nano-qwen3";
  const auto made = ChatTemplate::create(test::hugging_face_source(*folder / "target"));
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made.value()->end_of_turn(), "<|im_end|>");
  const Messages messages = {
      {"system", "S"}, {"user", "Q"}, {"assistant", "<think>\nhm\n</think>\n\nA"}, {"user", "R"}};
  const std::string history =
      "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n";
  EXPECT_EQ(made.value()->render(messages, false, {}).value(), history);
  EXPECT_EQ(
      made.value()->render(messages, true, {.variables = R"({"enable_thinking": true})"}).value(),
      history + "<|im_start|>assistant\n");
  EXPECT_EQ(made.value()->render(messages, true, {}).value(),
            history + "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  const auto tools = made.value()->render(Messages{{"user", "Q"}}, false,
                                          {.tools = R"([{"type": "function", "name": "f<"}])"});
  EXPECT_NE(tools.value().find("\n{\"type\": \"function\", \"name\": \"f<\"}\n</tools><|im_end|>"),
            std::string::npos);
}

}  // namespace
}  // namespace drafthouse
