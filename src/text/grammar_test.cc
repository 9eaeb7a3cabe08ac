#include "text/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/test_data.h"

namespace drafthouse {
namespace {

constexpr TokenId kHe = 256;      // "he"
constexpr TokenId kTwelve = 262;  // "12"
constexpr TokenId kEnd = 264;     // "<|im_end|>"

class GrammarTest : public ::testing::Test {
 protected:
  GrammarTest()
      : tokenizer_(Tokenizer::create(test::source_of(test::small_gguf())).value()),
        vocabulary_(GrammarVocabulary::create(*tokenizer_, std::vector<TokenId>{kEnd}).value()) {}

  Result<std::unique_ptr<Grammar>> make(GrammarForm form, std::string text) {
    return Grammar::create(vocabulary_, {form, std::move(text)});
  }
  std::vector<TokenId> allowed(Grammar& grammar) {
    std::vector<std::uint32_t> bits((tokenizer_->size() + 31) / 32);
    EXPECT_TRUE(grammar.mask(bits).ok());
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < tokenizer_->size(); ++id) {
      if ((bits[id / 32] >> id % 32 & 1u) != 0) ids.push_back(id);
    }
    return ids;
  }
  // Whether the grammar takes the text, and then an end.
  bool takes(Grammar& grammar, const std::string& text) {
    const std::vector<TokenId> ids = tokenizer_->encode(text, false).value();
    for (const TokenId id : ids) {
      if (!grammar.consume(id).value()) return false;
    }
    const std::vector<TokenId> next = allowed(grammar);
    return std::count(next.begin(), next.end(), kEnd) == 1;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
};

TEST_F(GrammarTest, ARegularExpressionAllowsWhatMayFollow) {
  auto grammar = make(GrammarForm::regex, "hello|hey").value();
  // "h", "he", "hell", "hello".
  const std::vector<TokenId> first = allowed(*grammar);
  EXPECT_EQ(first.size(), 4u);
  for (const TokenId id : first) EXPECT_EQ(tokenizer_->bytes_of(id)[0], 'h');
  EXPECT_FALSE(grammar->consume(tokenizer_->encode("x", false).value()[0]).value());
  EXPECT_TRUE(takes(*grammar, "hello"));
  EXPECT_EQ(allowed(*grammar), std::vector<TokenId>{kEnd});
}

TEST_F(GrammarTest, RollbackAndResetLeadBack) {
  auto grammar = make(GrammarForm::regex, "(he)?[0-9]{1,3}").value();
  const std::vector<TokenId> begin = allowed(*grammar);
  ASSERT_TRUE(grammar->consume(kHe).value());
  const std::vector<TokenId> after = allowed(*grammar);
  ASSERT_TRUE(grammar->consume(tokenizer_->encode("1", false).value()[0]).value());
  ASSERT_TRUE(grammar->consume(kTwelve).value());
  EXPECT_EQ(allowed(*grammar), std::vector<TokenId>{kEnd});
  ASSERT_TRUE(grammar->rollback(2).ok());
  EXPECT_EQ(allowed(*grammar), after);
  ASSERT_TRUE(grammar->reset().ok());
  EXPECT_EQ(allowed(*grammar), begin);
}

TEST_F(GrammarTest, ACloneGoesItsOwnWay) {
  auto grammar = make(GrammarForm::regex, "(he)?[0-9]{1,3}").value();
  ASSERT_TRUE(grammar->consume(kHe).value());
  const std::vector<TokenId> after = allowed(*grammar);
  auto clone = grammar->clone().value();
  EXPECT_EQ(allowed(*clone), after);
  ASSERT_TRUE(clone->consume(kTwelve).value());
  EXPECT_EQ(allowed(*grammar), after);
  grammar.reset();
  EXPECT_TRUE(takes(*clone, "1"));
  EXPECT_EQ(allowed(*clone), std::vector<TokenId>{kEnd});
}

TEST_F(GrammarTest, WhatNoTextMatchesIsRefusedInWords) {
  for (const char* text : {"start: start\n", "start: a\na: b\nb: a\n"}) {
    const Status status = make(GrammarForm::lark, text).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("no text can match it"), std::string::npos) << status.message();
  }
}

TEST_F(GrammarTest, JsonSchemas) {
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
          "required": ["a", "b"], "additionalProperties": false})";
  EXPECT_TRUE(takes(*make(GrammarForm::json_schema, schema).value(), R"({"a": 12, "b": "x"})"));
  EXPECT_FALSE(takes(*make(GrammarForm::json_schema, schema).value(), R"({"a": 12, "b": "z"})"));
  EXPECT_FALSE(takes(*make(GrammarForm::json_schema, schema).value(), R"({"a": 12})"));
}

// A model that likes white space best gets to the end all the same.
TEST_F(GrammarTest, WhiteSpaceInJsonIsBounded) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"}},
                                 "required": ["a"], "additionalProperties": false})";
  const TokenId space = tokenizer_->encode(" ", false).value()[0];
  for (const char* before : {"{", "{\"a\"", "{\"a\":", "{\"a\": 1"}) {
    auto grammar = make(GrammarForm::json_schema, schema).value();
    const std::vector<TokenId> ids = tokenizer_->encode(before, false).value();
    for (const TokenId id : ids) {
      ASSERT_TRUE(grammar->consume(id).value());
    }
    int spaces = 0;
    while (spaces < 100 && grammar->consume(space).value()) ++spaces;
    EXPECT_EQ(spaces, 40) << before;
    EXPECT_FALSE(allowed(*grammar).empty());
  }
  const std::string indented = "{\n" + std::string(16, ' ') + "\"a\" :\n\t\t12\r\n}";
  EXPECT_TRUE(takes(*make(GrammarForm::json_schema, schema).value(), indented));
  const std::string own =
      R"({"x-guidance": {"whitespace_flexible": false}, "type": "array", "items": {"type": "integer"}})";
  EXPECT_TRUE(takes(*make(GrammarForm::json_schema, own).value(), "[1,2]"));
  EXPECT_FALSE(takes(*make(GrammarForm::json_schema, own).value(), "[1, 2]"));
  EXPECT_TRUE(takes(*make(GrammarForm::json_schema, "true").value(), R"([{"a": 1}])"));
}

TEST_F(GrammarTest, Lark) {
  const std::string lark = "start: greeting (\" \" greeting)*\ngreeting: \"hello\" | /he+y/\n";
  EXPECT_TRUE(takes(*make(GrammarForm::lark, lark).value(), "hello heeey hello"));
  EXPECT_FALSE(takes(*make(GrammarForm::lark, lark).value(), "hello there"));
}

TEST_F(GrammarTest, AWrongOneIsRefusedWithItsPlace) {
  const struct {
    GrammarForm form;
    std::string text;
    std::string says;
  } wrong[] = {
      {GrammarForm::regex, "a(b", "unclosed"},
      {GrammarForm::regex, "\\", "ends in a backslash"},
      {GrammarForm::regex, "a\\\\\\", "ends in a backslash"},
      {GrammarForm::regex, "a[^\\s\\S]", "allows nothing"},
      {GrammarForm::json_schema, "{\"type\": ", "line 1 column"},
      {GrammarForm::json_schema, R"({"type": "objekt"})", "objekt"},
      {GrammarForm::json_schema, R"({"properties": {"inner": {"$ref": "#/nowhere"}}})", "nowhere"},
      {GrammarForm::json_schema,
       R"({"properties": {"a": {"type": "integer"}, "b": {"items": {"type": "objekt"}}}})",
       "at #/properties/b/items: "},
      {GrammarForm::lark, "start: \"a\"\nother: unknown_rule\n  | )\n", "3("},
      {GrammarForm::lark, "start: missing\n", "missing"},
      {GrammarForm::json_schema, std::string(5u << 20, ' '), "larger than"},
  };
  for (const auto& one : wrong) {
    const auto made = make(one.form, one.text);
    ASSERT_FALSE(made.ok()) << one.text;
    EXPECT_EQ(made.status().code(), Code::invalid_argument);
    EXPECT_NE(made.status().message().find(one.says), std::string::npos) << made.status().message();
  }
}

}  // namespace
}  // namespace drafthouse
