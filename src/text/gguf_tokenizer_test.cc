// Vocabularies of GGUF files against the tokenizer.json that they were made from.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/test_data.h"
#include "text/test_data.h"
#include "text/tokenizer.h"

namespace drafthouse {
namespace {

using Ids = std::vector<TokenId>;
using nlohmann::json;

json gemma4_json() {
  return test::read_json(test::pair_paths("nano-gemma4").target + "/tokenizer.json");
}

TokenizerSource from_json(const json& tokenizer) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = tokenizer.dump();
  return source;
}

std::string utf8(std::uint32_t code) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | code >> 6), byte(0x80 | (code & 0x3F))};
  if (code < 0x10000) {
    return {byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
  }
  return {byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 0x3F)),
          byte(0x80 | (code >> 6 & 0x3F)), byte(0x80 | (code & 0x3F))};
}

// Words, numbers, spaces, ends of lines, scripts, combining marks, emoji, the sign that stands for
// a space, names of byte tokens, special tokens, bytes that are no UTF-8.
std::vector<std::string> texts(const json& tokenizer) {
  std::vector<std::string> parts = {
      "the",      "Hello",    "world",       "it's",   "DON'T",   "don't",
      "2",        "1234567",  "3.14",        "x=y;",   "{}()",    "->",
      "  ",       "   ",      " ",           "\t",     "\n",      "\n\n",
      "\r\n",     "\n\n\n\n", "a",           "é",      "e\u0301", "ß",
      "ſ",        "Ω",        "шум",         "日本語", "한국어",  "עברית",
      "ไทย",      "😀",       "👩‍💻", "▁",      "▁▁a",     "<0x41>",
      "<0x0A>",   "\u00A0",   "\u3000",      "\u2028", "\x01",    "\xFF",
      "\xE2\x82", "<",        "|>",          "--",     "…",       "def f(x):\n    return x\n"};
  for (const auto& added : tokenizer["added_tokens"]) parts.push_back(added["content"]);
  std::mt19937 random(7);
  std::vector<std::string> all = {"", " ", "\n"};
  for (const std::string& part : parts) {
    for (const char* around : {"", " ", "\n", "a"}) all.push_back(around + part + around);
  }
  for (int i = 0; i < 600; ++i) {
    std::string text;
    for (std::size_t n = 1 + random() % 12; n > 0; --n) {
      text += parts[random() % parts.size()];
      if (random() % 3 == 0) text += ' ';
    }
    all.push_back(std::move(text));
  }
  for (int i = 0; i < 200; ++i) {  // any characters
    std::string text;
    for (std::size_t n = 1 + random() % 20; n > 0; --n) {
      auto code = static_cast<std::uint32_t>(random() % (random() % 4 == 0 ? 0x110000 : 0x3000));
      if (code >= 0xD800 && code < 0xE000) code = 0x20;
      text += utf8(code);
    }
    all.push_back(std::move(text));
  }
  return all;
}

void expect_same(const Tokenizer& gguf, const Tokenizer& reference, const json& tokenizer) {
  ASSERT_EQ(gguf.size(), reference.size());
  for (TokenId id = 0; id < gguf.size(); ++id) {
    EXPECT_EQ(gguf.bytes_of(id), reference.bytes_of(id)) << id;
    EXPECT_EQ(gguf.is_special(id), reference.is_special(id)) << id;
  }
  for (const std::string& text : texts(tokenizer)) {
    const Ids want = reference.encode(text, false).value();
    EXPECT_EQ(gguf.encode(text, false).value(), want) << text;
    for (const bool skip : {false, true}) {
      EXPECT_EQ(gguf.decode(want, skip).value(), reference.decode(want, skip).value()) << text;
    }
  }
}

TEST(GgufGemma4, SameIdsAndTextsAsItsTokenizerJson) {
  const json tokenizer = gemma4_json();
  const auto gguf = test::make_tokenizer(test::source_of(test::converted(tokenizer, "gemma4", "")));
  const auto reference = test::make_tokenizer(from_json(tokenizer));
  ASSERT_TRUE(gguf && reference);
  expect_same(*gguf, *reference, tokenizer);
}

// What llama.cpp's converter marks as text that always shows.
TEST(GgufGemma4, UserDefinedTokensShow) {
  GgufVocabulary vocabulary = test::converted(gemma4_json(), "gemma4", "gemma4");
  const auto channel = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), "<|channel>");
  const auto id = static_cast<TokenId>(channel - vocabulary.tokens.begin());
  vocabulary.token_types[id] = 4;
  const auto tokenizer = test::make_tokenizer(test::source_of(vocabulary));
  ASSERT_TRUE(tokenizer);
  const Ids ids = tokenizer->encode("<|channel>thought <|turn>", false).value();
  EXPECT_EQ(ids.front(), id);
  EXPECT_EQ(tokenizer->decode(ids, true).value(), "<|channel>thought ");
}

TEST(GgufGemma4, BeginsWithBosWhateverTheFileSays) {
  GgufVocabulary vocabulary = test::converted(gemma4_json(), "gemma4", "");
  vocabulary.bos_id = 2;
  vocabulary.add_bos = false;
  const auto tokenizer = test::make_tokenizer(test::source_of(vocabulary));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("", true).value(), Ids{2});
  EXPECT_EQ(tokenizer->encode("", false).value(), Ids{});
}

// Files whose merges lead to no token of several line ends have such tokens all the same.
TEST(GgufGemma4, LineEndsNeedNoMerges) {
  GgufVocabulary vocabulary = test::converted(gemma4_json(), "gemma4", "");
  const auto id = [&](const char* token) {
    return static_cast<TokenId>(
        std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token) -
        vocabulary.tokens.begin());
  };
  const Ids three = {id("\n\n\n")};
  const Ids five = {id("\n\n\n"), id("\n\n")};
  std::erase_if(vocabulary.merges, [](const std::string& merge) { return merge[0] == '\n'; });
  const auto tokenizer = test::make_tokenizer(test::source_of(vocabulary));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("\n\n\n", false).value(), three);
  EXPECT_EQ(tokenizer->encode("\n\n\n\n\n", false).value(), five);
  EXPECT_EQ(tokenizer->decode(five, true).value(), "\n\n\n\n\n");
  EXPECT_FALSE(tokenizer->is_special(five[0]));
}

TEST(GgufGemma4, RefusesAVocabularyThatLacksABytesToken) {
  GgufVocabulary vocabulary = test::converted(gemma4_json(), "gemma4", "");
  *std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), "<0xC3>") = "gone";
  const auto made = Tokenizer::create(test::source_of(vocabulary));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::corrupt);
  EXPECT_NE(made.status().message().find("<0xC3>"), std::string::npos);
}

// Byte-level tokenizers as the families' own tokenizer.json files cut text. Their vocabulary here
// is that of nano-qwen3.
struct Cut {
  const char* pre;
  const char* pattern;
  bool whole_words;  // before merges
};

const Cut kCuts[] = {
    {"lfm2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true},
    {"gpt-4o",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false},
};

TEST(GgufByteLevel, SameIdsAndTextsAsItsTokenizerJson) {
  json tokenizer = test::read_json(test::data_path("models/nano-qwen3") + "/target/tokenizer.json");
  tokenizer["normalizer"] = nullptr;
  for (const Cut& cut : kCuts) {
    SCOPED_TRACE(cut.pre);
    tokenizer["model"]["ignore_merges"] = cut.whole_words;
    tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = cut.pattern;
    const auto gguf =
        test::make_tokenizer(test::source_of(test::converted(tokenizer, "gpt2", cut.pre)));
    const auto reference = test::make_tokenizer(from_json(tokenizer));
    ASSERT_TRUE(gguf && reference);
    expect_same(*gguf, *reference, tokenizer);
  }
}

TEST(GgufLfm2, BeginsWithBosUnlessTheFileSaysNo) {
  GgufVocabulary vocabulary = test::small_gguf();
  vocabulary.pre = "lfm2";
  const auto first = [&] {
    return test::make_tokenizer(test::source_of(vocabulary))->encode("a", true).value();
  };
  EXPECT_EQ(first(), (Ids{*vocabulary.bos_id, 'a'}));
  vocabulary.add_bos = false;
  EXPECT_EQ(first(), Ids{'a'});
  vocabulary.pre = "qwen2";
  vocabulary.add_bos = std::nullopt;
  EXPECT_EQ(first(), Ids{'a'});
}

}  // namespace
}  // namespace drafthouse
