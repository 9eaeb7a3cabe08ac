#include <gtest/gtest.h>

#include <random>

#include "text/chat_template.h"
#include "text/test_data.h"
#include "text/tokenizer.h"

// Tokenizer files with mistakes: each gives an error of one line or a tokenizer that can be used,
// and none takes the process down.
namespace drafthouse {
namespace {

using nlohmann::json;

json small_tokenizer_json() {
  const GgufVocabulary gguf = test::small_gguf();
  json vocab = json::object();
  for (std::size_t id = 0; id < 263; ++id) vocab[gguf.tokens[id]] = id;
  const auto added = [&](std::size_t id, bool special) {
    return json{
        {"id", id},        {"content", gguf.tokens[id]}, {"single_word", false}, {"lstrip", false},
        {"rstrip", false}, {"normalized", false},        {"special", special}};
  };
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "\\p{N}|\\s*\\p{L}+|\\s+(?!\\S)|\\s+|[^\\s]"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(263, true), added(264, true), added(265, false)}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", gguf.merges}}}};
}

// Every value of the document, deepest last.
void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (value.is_structured()) {
    for (auto& element : value) collect(element, all);
  }
}

class Breaker {
 public:
  explicit Breaker(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::string text() {
    static const char* const kTexts[] = {"",
                                         " ",
                                         "a b",
                                         "\xC4\xA0",
                                         "ByteLevel",
                                         "Sequence",
                                         "<0xFF>",
                                         "<0x",
                                         "\\p{L}",
                                         "(?=a)*",
                                         "(",
                                         "(a*)*b",
                                         "x{1000}{1000}{1000}",
                                         "\xEF\xBF\xBD",
                                         "<|im_start|>",
                                         "Replace",
                                         "BPE",
                                         "Unigram",
                                         "WordPiece",
                                         "Metaspace",
                                         "ByteFallback",
                                         "CTC",
                                         "gpt2",
                                         "smollm"};
    std::string chosen = kTexts[below(std::size(kTexts))];
    if (below(10) == 0) chosen = std::string(5000, 'a');
    return chosen;
  }

  json value() {
    switch (below(9)) {
      case 0: return nullptr;
      case 1: return true;
      case 2: return -1;
      case 3: return 4294967295u;
      case 4: return 1e300;
      case 5: return json::array();
      case 6: return json::object();
      case 7: return below(300);
      default: return text();
    }
  }

  void change(json& document) {
    std::vector<json*> all;
    collect(document, all);
    // Half of the changes hit the structure, not one of the many vocabulary entries.
    json& victim =
        *all[below(2) == 0 ? below(all.size()) : below(std::min<std::size_t>(all.size(), 60))];
    if (victim.is_structured() && !victim.empty() && below(2) == 0) {
      auto at = victim.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(victim.size())));
      victim.erase(at);
    } else {
      victim = value();
    }
  }

  void change(std::string& bytes) {
    if (bytes.empty()) return;
    switch (below(4)) {
      case 0: bytes.resize(below(bytes.size())); break;
      case 1: bytes[below(bytes.size())] = static_cast<char>(below(256)); break;
      case 2: bytes.insert(below(bytes.size()), std::string(1 + below(2000), '[')); break;
      default: bytes.erase(below(bytes.size()), 1 + below(100)); break;
    }
  }

  void change(GgufVocabulary& gguf) {
    switch (below(12)) {
      case 0: gguf.tokens.resize(below(gguf.tokens.size() + 1)); break;
      case 1: gguf.tokens[below(gguf.tokens.size())] = text(); break;
      case 2: gguf.tokens[below(gguf.tokens.size())] = "\xFF\xFE"; break;
      case 3: gguf.token_types.resize(below(600)); break;
      case 4:
        gguf.token_types[below(gguf.token_types.size())] = static_cast<int>(below(9)) - 2;
        break;
      case 5: gguf.merges[below(gguf.merges.size())] = text(); break;
      case 6: gguf.merges.push_back(text() + " " + text()); break;
      case 7: gguf.pre = text(); break;
      case 8: gguf.model = text(); break;
      case 9:
        gguf.bos_id = static_cast<std::uint32_t>(random_());
        gguf.add_bos = true;
        break;
      case 10:
        gguf.tokens[below(gguf.tokens.size())] = gguf.tokens[below(gguf.tokens.size())];
        break;
      default: std::swap(gguf.tokens[1], gguf.tokens[below(gguf.tokens.size())]); break;
    }
  }

 private:
  std::mt19937 random_;
};

// Whether the source was accepted.
bool try_out(const TokenizerSource& source) {
  const auto made = Tokenizer::create(source);
  if (!made.ok()) {
    EXPECT_EQ(made.status().message().find('\n'), std::string::npos) << made.status().message();
    EXPECT_TRUE(made.status().code() == Code::corrupt || made.status().code() == Code::unsupported)
        << made.status().message();
    return false;
  }
  const Tokenizer& tokenizer = *made.value();
  std::vector<TokenId> ids = {0, 1, 255, 263, 264, 265, 1000, 0xFFFFFFFF};
  for (const char* text : {"", "hello hello 12 <|im_end|>\n", "\xC3\xA9\xFF aaa", "  \t"}) {
    const auto encoded = tokenizer.encode(text, true);
    if (encoded.ok()) ids.insert(ids.end(), encoded.value().begin(), encoded.value().end());
  }
  (void)tokenizer.decode(ids, false);
  (void)tokenizer.decode(ids, true);
  for (const TokenId id : ids) {
    (void)tokenizer.bytes_of(id);
    (void)tokenizer.is_special(id);
  }
  (void)tokenizer.id_of("hello");
  return true;
}

TEST(BrokenTokenizer, TheOriginalWorks) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = small_tokenizer_json().dump();
  ASSERT_TRUE(try_out(source));
  const auto tokenizer = std::move(Tokenizer::create(source)).value();
  EXPECT_EQ(tokenizer->encode("hello hello<|im_end|>12", false).value(),
            (std::vector<TokenId>{259, 261, 264, '1', '2'}));
}

TEST(BrokenTokenizer, ChangedValues) {
  int accepted = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Breaker breaker(seed);
    json document = small_tokenizer_json();
    for (std::size_t n = 1 + breaker.below(3); n > 0; --n) breaker.change(document);
    TokenizerSource source;
    source.origin = "tokenizer.json";
    source.tokenizer_json = document.dump();
    accepted += try_out(source) ? 1 : 0;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 300);
}

TEST(BrokenTokenizer, ChangedBytes) {
  const std::string original = small_tokenizer_json().dump();
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Breaker breaker(seed);
    TokenizerSource source;
    source.origin = "tokenizer.json";
    source.tokenizer_json = original;
    breaker.change(*source.tokenizer_json);
    (void)try_out(source);
  }
}

TEST(BrokenTokenizer, ChangedGguf) {
  int accepted = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Breaker breaker(seed);
    GgufVocabulary gguf = test::small_gguf();
    breaker.change(gguf);
    accepted += try_out(test::source_of(gguf)) ? 1 : 0;
  }
  EXPECT_GT(accepted, 50);
  EXPECT_LT(accepted, 300);
}

TEST(BrokenTokenizer, SettingsThatChangePromptsHaveNoEffect) {
  json document = small_tokenizer_json();
  document["padding"] = {{"strategy", {{"Fixed", 1000000000}}},
                         {"direction", "Right"},
                         {"pad_to_multiple_of", nullptr},
                         {"pad_id", 0},
                         {"pad_type_id", 0},
                         {"pad_token", "x"}};
  document["truncation"] = {
      {"direction", "Right"}, {"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = document.dump();
  const auto made = Tokenizer::create(source);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made.value()->encode("12", true).value(), (std::vector<TokenId>{'1', '2'}));

  document["model"]["dropout"] = 0.5;
  source.tokenizer_json = document.dump();
  EXPECT_EQ(Tokenizer::create(source).status().code(), Code::unsupported);
}

TEST(BrokenTokenizer, HugeIdsAndGrowingNormalizersAreRefused) {
  json document = small_tokenizer_json();
  document["model"]["vocab"]["zz"] = 4000000000u;
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = document.dump();
  EXPECT_EQ(Tokenizer::create(source).status().code(), Code::corrupt);

  document = small_tokenizer_json();
  const json grow = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}};
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grow, grow, grow, grow}}};
  source.tokenizer_json = document.dump();
  EXPECT_EQ(Tokenizer::create(source).status().code(), Code::corrupt);
}

TEST(BrokenTokenizer, BosFromTheConfiguration) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = small_tokenizer_json().dump();
  source.tokenizer_config_json = R"({"add_bos_token": true})";
  source.bos_token = "<|im_start|>";
  EXPECT_EQ(Tokenizer::create(source).value()->encode("1", true).value(),
            (std::vector<TokenId>{263, '1'}));
  for (const char* broken : {"", "[", "[]", "3", R"({"add_bos_token": "yes"})"}) {
    source.tokenizer_config_json = broken;
    EXPECT_EQ(Tokenizer::create(source).value()->encode("1", true).value(),
              std::vector<TokenId>{'1'});
  }
}

}  // namespace
}  // namespace drafthouse
