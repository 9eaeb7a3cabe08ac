#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_data.h"
#include "text/utf8.h"

namespace drafthouse {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

std::string lossy(std::string bytes) {
  std::string text = take_settled_utf8(bytes);
  if (!bytes.empty()) text += kBad;
  return text;
}

std::shared_ptr<const Tokenizer> small_tokenizer() {
  return test::make_tokenizer(test::source_of(test::small_gguf()));
}

TEST(Utf8, OneReplacementForEachMaximalInvalidPart) {
  const std::string r = kBad;
  EXPECT_EQ(lossy("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x80"),
            "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\x80");
  EXPECT_EQ(lossy("\xE2\x82"
                  "a"),
            r + "a");
  EXPECT_EQ(lossy("\xF0\x9F\x9A"), r);
  EXPECT_EQ(lossy("\xFF\xFE"), r + r);
  EXPECT_EQ(lossy("\xED\xA0\x80"), r + r + r) << "surrogate";
  EXPECT_EQ(lossy("\xC0\xAF"), r + r) << "overlong";
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), r + r + r + r) << "above U+10FFFF";
  EXPECT_EQ(lossy("\xE0\x80"), r + r);
  EXPECT_EQ(lossy("\xEF\xBF\xBD"), r) << "a real U+FFFD passes";
}

// decode() is a lossy decode inside Rust, so the two implementations check each other.
TEST(Detokenizer, PiecesAddUpToTheWholeText) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const bool skip = random() % 2 == 0;
    Detokenizer detokenizer(tokenizer, skip);
    std::vector<TokenId> ids(random() % 40);
    std::string bytes;
    std::string text;
    for (TokenId& id : ids) {
      id = random() % 3 == 0 ? static_cast<TokenId>(0xE0 + random() % 0x20)
                             : static_cast<TokenId>(random() % 270);
      if (!(skip && tokenizer->is_special(id))) bytes += tokenizer->bytes_of(id);
      const std::string piece = detokenizer.push(id);
      std::string copy = piece;
      EXPECT_EQ(take_settled_utf8(copy), piece);
      EXPECT_TRUE(copy.empty()) << "a piece ends inside a character";
      text += piece;
    }
    text += detokenizer.finish();
    EXPECT_EQ(text, lossy(bytes));
    EXPECT_EQ(text, tokenizer->decode(ids, skip).value());
    EXPECT_EQ(detokenizer.finish(), "");
  }
}

TEST(Detokenizer, HoldsAnIncompleteCharacter) {
  Detokenizer detokenizer(small_tokenizer(), false);
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.finish(), kBad);
}

TEST(StopMatcher, FindsStopsAcrossPieces) {
  StopMatcher matcher({"", "</s>", "STOP"});
  EXPECT_EQ(matcher.push("a<"), "a");
  EXPECT_EQ(matcher.push("b</"), "<b");
  EXPECT_EQ(matcher.push("sS"), "</s");
  EXPECT_EQ(matcher.push("TO"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("Pmore"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("late"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesTheTailBack) {
  StopMatcher matcher({"abcd"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_EQ(matcher.finish(), "abc");
  EXPECT_FALSE(matcher.stopped());
  StopMatcher none({});
  EXPECT_EQ(none.push("text"), "text");
}

// However the text is cut, the same part of it is shown, and nothing is held back longer than it
// can still begin a stop string.
TEST(StopMatcher, DoesNotDependOnTheCuts) {
  std::mt19937 random(2);
  const auto word = [&](std::size_t longest) {
    std::string text(random() % (longest + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = word(5);
    const std::string text = word(30);

    StopMatcher whole(stops);
    std::string expected = whole.push(text);
    expected += whole.finish();
    EXPECT_TRUE(text.starts_with(expected));
    for (const std::string& stop : stops) {
      EXPECT_TRUE(stop.empty() || expected.find(stop) == std::string::npos) << text;
    }

    StopMatcher pieces(stops);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(1 + random() % 4, text.size() - at);
      shown += pieces.push(text.substr(at, size));
      at += size;
    }
    shown += pieces.finish();
    EXPECT_EQ(shown, expected) << text;
    EXPECT_EQ(pieces.stopped(), whole.stopped());
  }
}

}  // namespace
}  // namespace drafthouse
