// Answers under a grammar are valid, and the same with speculation off, greedy and drawn. ./test
// runs a share of the schemas, expressions and Lark grammars, ./test --full all of them.

#include <gtest/gtest.h>

#include <cstdio>
#include <regex>

#include "tests/exactness/answer_grammars.h"
#include "tests/exactness/json_schema_check.h"
#include "tests/exactness/real_pairs.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

struct Figures {
  std::size_t answers = 0;  // of plain decoding
  std::size_t ended = 0;    // of them, before max_tokens
  std::size_t ids = 0;
  std::size_t compared = 0;
  std::size_t accepted = 0;  // proposals that stood
};

// Greedily a small model writes as much white space as it may.
std::string without_space(const std::string& schema) {
  return R"({"x-guidance": {"whitespace_flexible": false}, )" + schema.substr(1);
}

class Answers {
 public:
  Answers(const std::string& target, const std::string& draft)
      : plain_(must(Engine::load({.target = target}))),
        pair_(must(Engine::load({.target = target, .draft = draft}))) {}

  bool loaded() const { return plain_ != nullptr && pair_ != nullptr; }
  const Figures& figures() const { return figures_; }

  // Runs a grammar greedily and drawn, on every path; `why_not` says what is wrong with an answer.
  template <class WhyNot>
  void expect_valid(const GrammarSpec& grammar, std::size_t index, WhyNot&& why_not) {
    SCOPED_TRACE(grammar.text);
    for (const bool drawn : {false, true}) {
      GenerateRequest wanted{.prompt_ids = golden_prompt(index), .max_tokens = 300};
      wanted.grammar = grammar;
      if (drawn) {
        wanted.sampling.temperature = 1;
        wanted.sampling.seed = index;
      } else if (grammar.form == GrammarForm::json_schema) {
        wanted.grammar.text = without_space(grammar.text);
      }
      const Result<GenerateResult> plain = plain_->generate(wanted);
      ASSERT_TRUE(plain.ok()) << plain.status().message();
      ++figures_.answers;
      figures_.ids += plain.value().ids.size();
      // One that max_tokens cut is the beginning of an answer.
      if (plain.value().finish_reason == "stop") {
        ++figures_.ended;
        EXPECT_EQ(why_not(plain.value().text), "") << plain.value().text;
      }
      expect_same(wanted, plain.value());
    }
  }

 private:
  void expect_same(GenerateRequest wanted, const GenerateResult& plain) {
    for (const std::uint32_t width : {1u, 4u, 16u, 0u}) {
      wanted.width = width;
      const Result<GenerateResult> other = pair_->generate(wanted);
      ASSERT_TRUE(other.ok()) << other.status().message();
      EXPECT_EQ(other.value().ids, plain.ids) << "width " << width << ": " << plain.text;
      EXPECT_EQ(other.value().finish_reason, plain.finish_reason);
      ++figures_.compared;
      for (const std::uint32_t gained : other.value().accepted_per_turn) {
        figures_.accepted += gained - 1;
      }
    }
  }

  std::unique_ptr<Engine> plain_;
  std::unique_ptr<Engine> pair_;
  Figures figures_;
};

std::string why_no_match(const std::string& expression, const std::string& text) {
  return std::regex_match(text, std::regex(expression)) ? "" : "does not match " + expression;
}

struct Share {
  std::size_t schemas;
  std::size_t expressions;
  std::size_t larks;
};
constexpr Share kAll = {30, 20, 5};

// `count` of `all`, spread over them.
template <class T>
std::vector<std::pair<std::size_t, T>> spread(const std::vector<T>& all, std::size_t count) {
  std::vector<std::pair<std::size_t, T>> some;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * all.size() / count;
    some.emplace_back(at, all[at]);
  }
  return some;
}

void run_grammars(const std::string& target, const std::string& draft, Share share) {
  Answers answers(target, draft);
  ASSERT_TRUE(answers.loaded());
  if (full_run()) share = kAll;
  for (const auto& [at, schema] : spread(answer_schemas(), share.schemas)) {
    const SchemaCheck check(schema);
    answers.expect_valid({GrammarForm::json_schema, schema}, at,
                         [&check](const std::string& text) { return check.why_not(text); });
  }
  for (const auto& [at, expression] : spread(answer_expressions(), share.expressions)) {
    answers.expect_valid({GrammarForm::regex, expression}, at,
                         [&expression = expression](const std::string& text) {
                           return why_no_match(expression, text);
                         });
  }
  for (const auto& [at, lark] : spread(answer_larks(), share.larks)) {
    answers.expect_valid(
        {GrammarForm::lark, lark.grammar}, at,
        [&lark = lark](const std::string& text) { return why_no_match(lark.expression, text); });
  }
  const Figures& figures = answers.figures();
  std::printf(
      "%s: %zu schemas, %zu expressions, %zu Lark grammars; %zu answers of %zu ids, %zu of them "
      "whole; %zu answers compared, %zu proposals stood in them\n",
      target.c_str(), share.schemas, share.expressions, share.larks, figures.answers, figures.ids,
      figures.ended, figures.compared, figures.accepted);
  EXPECT_GE(figures.ended * 100, figures.answers * 90);
  EXPECT_GT(figures.accepted, 0u);
}

TEST(Constrained, AnswersOfTheNanoPair) { run_grammars(nano("target"), nano("draft"), {15, 7, 5}); }

TEST(Constrained, AnswersOfThePairWithRecurrentLayers) {
  const PairPaths paths = pair_paths("nano-qwen3_5");
  run_grammars(paths.target, paths.draft, {5, 4, 2});
}

TEST(Constrained, AnswersOfThePairWithWindows) {
  const PairPaths paths = pair_paths("nano-gemma4");
  if (paths.target.empty()) GTEST_SKIP() << "nano-gemma4 is not in the test data";
  run_grammars(paths.target, paths.draft, {5, 4, 2});
}

TEST(Constrained, AnswersOfTheDefaultPair) {
  if (default_model().empty()) GTEST_SKIP() << "the default model has not been fetched";
  run_grammars(default_model(), kDefaultDraft, {2, 2, 1});
}

TEST(Constrained, TheCheckOfAnswersRefusesWrongOnes) {
  const auto refuses = [](std::size_t schema, const std::string& text) {
    return !SchemaCheck(answer_schemas()[schema]).why_not(text).empty();
  };
  EXPECT_FALSE(refuses(0, R"({"name": "Ann", "age": 3})"));
  EXPECT_TRUE(refuses(0, R"({"name": "Ann", "age": 3, "more": 1})"));
  EXPECT_TRUE(refuses(0, R"({"name": "Ann", "age": 121})"));
  EXPECT_TRUE(refuses(0, R"({"name": "Ann"})"));
  EXPECT_TRUE(refuses(0, R"({"name": "Ann", "age": 3)"));
  EXPECT_TRUE(refuses(6, "[1]"));
  EXPECT_TRUE(refuses(9, R"(["on", 3, 4])"));
  EXPECT_TRUE(refuses(14, "[0.3]"));
  EXPECT_TRUE(refuses(16, R"({"when": "2024-13-01", "at": "10:00:00Z"})"));
  EXPECT_TRUE(refuses(17, R"({"id": "x", "from": "1.2.3.4"})"));
  EXPECT_TRUE(refuses(19, R"("äöü")"));
  EXPECT_FALSE(refuses(19, R"("äöüß")"));
  EXPECT_TRUE(refuses(24, "10"));
  EXPECT_TRUE(refuses(28, R"({"v": 1, "next": {"v": 2}})"));
}

TEST(Constrained, AWrongGrammarIsRefusedBeforeAnything) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("nano")).ok());
  SubmitRequest wanted = request("nano", golden_prompt(0), 10);
  wanted.ignore_eos = false;
  wanted.grammar = {GrammarForm::json_schema, R"({"type": "objekt"})"};
  const auto refused = host->submit(wanted);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(refused.status().message().find("objekt"), std::string::npos);
  wanted.grammar = {GrammarForm::regex, "[ab]{4}"};
  const Event good = test::run(*host, wanted);
  EXPECT_EQ(good.kind, Event::Kind::finished);
  EXPECT_TRUE(std::regex_match(good.result.text, std::regex("[ab]{4}"))) << good.result.text;
}

}  // namespace
}  // namespace drafthouse
