// Grammars with every variant of a draft, above all with one whose vocabulary lacks ids that a
// grammar asks for: answers match, and are those of the target alone. The target's 256 ids are the
// bytes of a text here, but for a few control tokens.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>

#include "drafthouse/engine.h"
#include "tests/draft_folder.h"

namespace drafthouse {
namespace {

// What a byte is called in the vocabulary of a byte-level tokenizer.
std::string name_of_byte(unsigned byte) {
  const auto printable = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b != 173); };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// A tokenizer.json: id = byte, but for <pad>, <eos>, <bos> (0 to 2) and <mask> (255).
std::string byte_tokenizer() {
  nlohmann::json vocabulary;
  nlohmann::json added = nlohmann::json::array();
  for (const auto& [id, name] :
       std::map<unsigned, const char*>{{0, "<pad>"}, {1, "<eos>"}, {2, "<bos>"}, {255, "<mask>"}}) {
    vocabulary[name] = id;
    added.push_back({{"id", id},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (unsigned byte = 3; byte < 255; ++byte) vocabulary[name_of_byte(byte)] = byte;
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  const nlohmann::json whole = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"pre_tokenizer", bytes},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  return whole.dump();
}

// Letters that are ids of the draft's vocabulary, and letters that are not.
struct Letters {
  std::string inside;
  std::string outside;
};
Letters letters_of(const test::CheckpointFolder& draft) {
  Letters letters;
  const std::string& offsets = draft.tensors.at("d2t").bytes;
  std::set<std::uint64_t> ids;
  for (std::size_t i = 0; i * 8 < offsets.size(); ++i) {
    std::uint64_t offset = 0;
    std::memcpy(&offset, offsets.data() + i * 8, 8);
    ids.insert(i + offset);
  }
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    (ids.count(static_cast<unsigned char>(letter)) > 0 ? letters.inside : letters.outside) +=
        letter;
  }
  return letters;
}

class DraftGrammars : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string source = test::data_path("tiny/gemma4-e");
    ASSERT_FALSE(source.empty());
    std::filesystem::copy(source, folder_ / "target");
    std::filesystem::permissions(folder_ / "target", std::filesystem::perms::owner_all);
    folder_.write("target/tokenizer.json", byte_tokenizer());
    draft_ = test::draft_of_six_layers(GetParam());
    draft_.write(folder_ / "draft");
    plain_ = load("");
    pair_ = load(folder_ / "draft");
  }
  std::unique_ptr<Engine> load(const std::string& draft) {
    auto engine =
        Engine::load({.target = folder_ / "target", .draft = draft, .threads = 2, .context = 256});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? std::move(engine).value() : nullptr;
  }

  // The turns' gains of all widths together, in ids over turns.
  double expect_same(const std::string& expression, const SamplingOptions& sampling) {
    SCOPED_TRACE(expression);
    GenerateRequest request;
    for (std::uint32_t i = 0; i < 70; ++i) request.prompt_ids.push_back((i * 37 + 11) % 250);
    request.max_tokens = 120;
    request.sampling = sampling;
    request.grammar = {GrammarForm::regex, expression};
    const auto want = plain_->generate(request);
    EXPECT_TRUE(want.ok()) << want.status().message();
    if (!want.ok()) return 0;
    EXPECT_TRUE(std::regex_match(want.value().text, std::regex(expression))) << want.value().text;
    double turns = 0;
    double gained = 0;
    for (const std::uint32_t width : {0u, 2u, 5u, pair_->info().block_size}) {
      request.width = width;
      const auto got = pair_->generate(request);
      EXPECT_TRUE(got.ok()) << got.status().message();
      if (!got.ok()) return 0;
      EXPECT_EQ(got.value().ids, want.value().ids) << "width " << width;
      if (width < pair_->info().block_size) continue;
      for (const std::uint32_t ids : got.value().accepted_per_turn) {
        gained += ids;
        ++turns;
      }
    }
    return turns > 0 ? gained / turns : 0;
  }

  testing::TempFolder folder_;
  test::CheckpointFolder draft_;
  std::unique_ptr<Engine> plain_;
  std::unique_ptr<Engine> pair_;
};

TEST_P(DraftGrammars, AnswersMatchAndAreTheTargetsAtEveryWidth) {
  ASSERT_TRUE(plain_ != nullptr && pair_ != nullptr);
  for (const SamplingOptions& sampling :
       {SamplingOptions{}, SamplingOptions{.temperature = 1, .seed = 3},
        SamplingOptions{.temperature = 8, .top_k = 20, .seed = 7},
        SamplingOptions{
            .temperature = 2, .repetition_penalty = 1.3f, .ban_ids = {'q', '5'}, .seed = 5}}) {
    for (const char* expression :
         {"[a-z]{30}", "([0-9]{3}[A-Z]){8}", "[ -~]{1,40}", "(yes|no|perhaps)", "x{60}",
          "\\{\"name\": \"[a-z]{4,9}\", \"count\": [1-9][0-9]{0,2}\\}"}) {
      expect_same(expression, sampling);
    }
  }
}

// An id that alone may come next is proposed, whatever the draft's vocabulary holds.
TEST_P(DraftGrammars, WhatTheGrammarLeavesNoChoiceOfIsAccepted) {
  ASSERT_TRUE(plain_ != nullptr && pair_ != nullptr);
  const double forced = expect_same("The quick brown fox jumps over 13 lazy dogs\\.", {});
  EXPECT_GT(forced, 0.8 * pair_->info().block_size);
}

class ReducedVocabulary : public DraftGrammars {};

TEST_P(ReducedVocabulary, LettersInsideAndOutside) {
  ASSERT_TRUE(plain_ != nullptr && pair_ != nullptr);
  const auto [inside, outside] = letters_of(draft_);
  ASSERT_GE(inside.size(), 3u);
  ASSERT_GE(outside.size(), 3u);
  for (const float temperature : {0.0f, 1.0f, 8.0f}) {
    const SamplingOptions sampling{.temperature = temperature, .seed = 2};
    expect_same("[" + inside + "]{40}", sampling);
    expect_same("[" + outside + "]{40}", sampling);
    expect_same("([" + inside + "][" + outside + "]{2}){15}", sampling);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DraftGrammars, ::testing::ValuesIn(test::kDraftVariants),
                         test::variant_name);
INSTANTIATE_TEST_SUITE_P(Speculators, ReducedVocabulary, ::testing::Values("speculators"),
                         test::variant_name);

}  // namespace
}  // namespace drafthouse
