// Answers under a grammar are valid, and the same with speculation off, greedy and drawn. ./test
// runs a few schemas and expressions, ./test --full all of them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "tests/exactness/real_pairs.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;
using Json = nlohmann::ordered_json;

std::uint32_t below(std::mt19937& random, std::uint32_t count) {
  return static_cast<std::uint32_t>(random()) % count;
}

// A value of bounded length, so that an answer ends.
Json random_schema(std::mt19937& random, int depth) {
  switch (below(random, depth > 0 ? 6 : 4)) {
    case 0: return {{"type", "boolean"}};
    case 1: return {{"enum", {"red", "green", "blue", "grey"}}};
    case 2: return {{"type", "integer"}, {"minimum", 1}, {"maximum", 5 + below(random, 500)}};
    case 3: return {{"type", "string"}, {"pattern", "^[a-z ]{1,12}$"}};
    case 4:
      return {{"type", "array"},
              {"items", random_schema(random, depth - 1)},
              {"minItems", 1},
              {"maxItems", 3}};
    default: {
      Json properties = Json::object();
      Json required = Json::array();
      for (std::uint32_t i = 0; i < 1 + below(random, 3); ++i) {
        const std::string name = std::string(1, static_cast<char>('a' + i)) + "_field";
        properties[name] = random_schema(random, depth - 1);
        if (below(random, 3) != 0) required.push_back(name);
      }
      return {{"type", "object"},
              {"properties", properties},
              {"required", required},
              {"additionalProperties", false}};
    }
  }
}

std::string schema(std::uint32_t index) {
  std::mt19937 random(index + 1);
  Json properties = {{"name", random_schema(random, 1)}, {"value", random_schema(random, 2)}};
  const Json whole = {{"type", "object"},
                      {"properties", properties},
                      {"required", {"name", "value"}},
                      {"additionalProperties", false},
                      // A small model may go on with white space for ever.
                      {"x-guidance", {{"whitespace_flexible", false}}}};
  return whole.dump();
}

// What random_schema() may say, checked plainly.
bool valid(const Json& schema, const Json& value) {
  if (schema.contains("enum")) {
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  }
  const std::string type = schema["type"];
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") {
    return value.is_number_integer() && value >= schema["minimum"] && value <= schema["maximum"];
  }
  if (type == "string") {
    return value.is_string() &&
           std::regex_match(value.get<std::string>(), std::regex("[a-z ]{1,12}"));
  }
  if (type == "array") {
    if (!value.is_array() || value.size() < 1 || value.size() > schema["maxItems"]) return false;
    return std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return valid(schema["items"], item); });
  }
  if (!value.is_object()) return false;
  for (const auto& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  for (const auto& [name, inner] : value.items()) {
    if (!schema["properties"].contains(name) || !valid(schema["properties"][name], inner))
      return false;
  }
  return true;
}

const std::vector<std::string>& expressions() {
  static const std::vector<std::string> all = {
      "[a-z]{3,8}",
      "(yes|no|maybe)",
      "[0-9]{4}-[0-9]{2}-[0-9]{2}",
      "\\+[0-9]{3,12}",
      "[A-Z][a-z]{1,10}( [A-Z][a-z]{1,10}){0,2}",
      "#[0-9a-f]{6}",
      "(red|green|blue)(, (red|green|blue)){0,3}",
      "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
      "(true|false)",
      "[a-z]{1,12}@[a-z]{1,12}\\.(com|org)",
      "\\(([0-9]{1,2}, ){2}[0-9]{1,2}\\)",
      "(a|b){10}",
      "The answer is [a-z ]{1,20}\\.",
      "<b>[a-zA-Z ]{1,16}</b>",
      "x=[0-9]{1,4};y=[0-9]{1,4}",
      "(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [0-9]{2}:[0-9]{2}",
      "\"[^\"\\\\]{0,10}\"",
      "[01]{8}( [01]{8}){1,3}",
      "(ha){2,6}!",
      "- [a-z]{2,9}\\n- [a-z]{2,9}\\n- [a-z]{2,9}",
  };
  return all;
}

// The answer, which is the same for every width and seed that it is asked for.
void expect_same(Engine& engine, const GrammarSpec& grammar, std::size_t index, bool drawn,
                 GenerateResult& plain) {
  GenerateRequest wanted{.prompt_ids = golden_prompt(index), .max_tokens = 300};
  wanted.grammar = grammar;
  if (drawn) {
    wanted.sampling.temperature = 1;
    wanted.sampling.seed = index;
  }
  wanted.width = 1;
  const auto first = engine.generate(wanted);
  ASSERT_TRUE(first.ok()) << first.status().message();
  plain = first.value();
  EXPECT_EQ(plain.finish_reason, "stop") << plain.text;
  for (const std::uint32_t width : {4u, 16u, 0u}) {
    wanted.width = width;
    const auto other = engine.generate(wanted);
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_EQ(other.value().ids, plain.ids) << "width " << width << ": " << plain.text;
  }
}

void run_grammars(const std::string& target, const std::string& draft, std::uint32_t schemas,
                  std::size_t regexes) {
  auto engine = must(Engine::load({.target = target, .draft = draft}));
  ASSERT_NE(engine, nullptr);
  for (std::uint32_t i = 0; i < schemas; ++i) {
    SCOPED_TRACE(schema(i));
    for (const bool drawn : {false, true}) {
      GenerateResult got;
      expect_same(*engine, {GrammarForm::json_schema, schema(i)}, i, drawn, got);
      const Json value = Json::parse(got.text, nullptr, false);
      EXPECT_FALSE(value.is_discarded()) << got.text;
      EXPECT_TRUE(valid(Json::parse(schema(i)), value)) << got.text;
    }
  }
  for (std::size_t i = 0; i < regexes; ++i) {
    const std::string& expression = expressions()[i % expressions().size()];
    SCOPED_TRACE(expression);
    for (const bool drawn : {false, true}) {
      GenerateResult got;
      expect_same(*engine, {GrammarForm::regex, expression}, i, drawn, got);
      EXPECT_TRUE(std::regex_match(got.text, std::regex(expression))) << got.text;
    }
  }
}

TEST(Constrained, AnswersOfTheNanoPair) {
  run_grammars(nano("target"), nano("draft"), full_run() ? 30 : 6, full_run() ? 20 : 8);
}

TEST(Constrained, AnswersOfTheDefaultPair) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  run_grammars(default_model(), kDefaultDraft, full_run() ? 30 : 1, full_run() ? 20 : 2);
}

TEST(Constrained, AWrongGrammarIsRefusedBeforeAnything) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("nano")).ok());
  SubmitRequest wanted = request("nano", golden_prompt(0), 10);
  wanted.grammar = {GrammarForm::json_schema, R"({"type": "objekt"})"};
  const auto refused = host->submit(wanted);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find("objekt"), std::string::npos);
  wanted.grammar = {GrammarForm::regex, "[ab]{4}"};
  wanted.ignore_eos = false;
  const Event good = test::run(*host, wanted);
  EXPECT_EQ(good.kind, Event::Kind::finished);
  EXPECT_TRUE(std::regex_match(good.result.text, std::regex("[ab]{4}"))) << good.result.text;
}

}  // namespace
}  // namespace drafthouse
