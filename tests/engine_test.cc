// The engine as its users see it: limits, ends, cancellation, pairing, memory.

#include "drafthouse/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/memory.h"
#include "engine/internals.h"
#include "engine/synthetic.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

namespace fs = std::filesystem;

std::string nano(const char* part) { return test::data_path("models/nano-qwen3") + "/" + part; }

std::unique_ptr<Engine> load(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::load(options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::unique_ptr<Engine> nano_pair(std::uint32_t context = 0) {
  return load({.target = nano("target"), .draft = nano("draft"), .context = context});
}

std::vector<std::uint32_t> prompt(std::size_t index) {
  return test::read_json(nano("golden.json"))["cases"][index]["prompt_ids"]
      .get<std::vector<std::uint32_t>>();
}

TEST(Load, WhatWasOpenedIsNotOpenedAgain) {
  const fs::path folder = fs::temp_directory_path() / ("opened-target-" + std::to_string(getpid()));
  fs::copy(nano("target"), folder, fs::copy_options::recursive);
  Result<OpenedTarget> opened = open_target(folder.string());
  fs::remove_all(folder);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  ASSERT_NE(opened.value().tokenizer, nullptr);
  auto engine =
      load_opened(std::move(opened).value(), {.target = folder.string(), .draft = nano("draft")});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const GenerateRequest request{.prompt_ids = prompt(0), .max_tokens = 24, .ignore_eos = true};
  EXPECT_EQ(engine.value()->generate(request).value().ids,
            nano_pair()->generate(request).value().ids);
}

TEST(Generate, EndsWhereTheContextEnds) {
  auto engine = nano_pair(80);
  ASSERT_NE(engine, nullptr);
  const std::vector<std::uint32_t> ids = prompt(0);
  for (const std::uint32_t width : {1u, 7u, 16u, 0u}) {
    const auto result =
        engine->generate({.prompt_ids = ids, .width = width, .ignore_eos = true}).value();
    EXPECT_EQ(result.finish_reason, "length");
    EXPECT_EQ(result.ids.size(), 80 - ids.size()) << "width " << width;
  }
  std::vector<std::uint32_t> too_long(80, 5);
  EXPECT_EQ(engine->generate({.prompt_ids = too_long}).status().code(), Code::context_overflow);
  too_long.pop_back();
  const auto one = engine->generate({.prompt_ids = too_long, .ignore_eos = true}).value();
  EXPECT_EQ(one.ids.size(), 1u);
  EXPECT_EQ(one.finish_reason, "length");
}

TEST(Generate, RefusesWhatItCannotRun) {
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->generate({}).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->generate({.prompt_ids = {1, 2048}}).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->generate({.prompt_ids = {1}, .width = 17}).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(engine->score({.ids = {1}}).status().code(), Code::invalid_argument);
  EXPECT_EQ(engine->score({.ids = {1, 0xffffffff}}).status().code(), Code::invalid_argument);
}

TEST(Encode, ATextThatCannotFitIsRefusedBeforeItIsTokenised) {
  auto engine = nano_pair(80);
  ASSERT_NE(engine, nullptr);
  for (const char* piece : {"a", " ", "\n", "\xF0\x9F\x98\x80"}) {
    std::string text;
    while (text.size() < (std::size_t{4} << 20)) text += piece;
    const Status raw = engine->encode(text, true).status();
    EXPECT_EQ(raw.code(), Code::context_overflow);
    EXPECT_NE(raw.message().find("80 positions"), std::string::npos) << raw.message();
    const std::vector<ChatTurn> chat{{"user", text}};
    EXPECT_EQ(engine->encode_chat(chat).status().code(), Code::context_overflow);
  }
  // Eighty of the longest tokens fit.
  EXPECT_TRUE(engine->encode(std::string(80, 'a'), true).ok());
}

TEST(Load, RefusesMoreContextThanTheModelHas) {
  EXPECT_EQ(Engine::load({.target = nano("target"), .context = 100000}).status().code(),
            Code::invalid_argument);
}

TEST(Load, RefusesMoreThreadsThanCanHelp) {
  EXPECT_EQ(Engine::load({.target = nano("target"), .threads = 100000}).status().code(),
            Code::invalid_argument);
}

TEST(Generate, ModeAndReasonSayWhatRan) {
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  const auto speculative = engine->generate({.prompt_ids = prompt(0), .max_tokens = 8}).value();
  EXPECT_EQ(speculative.mode, "dflash");
  EXPECT_EQ(speculative.reason, "");
  const auto narrow =
      engine->generate({.prompt_ids = prompt(0), .max_tokens = 8, .width = 1}).value();
  EXPECT_EQ(narrow.mode, "plain");
  EXPECT_EQ(narrow.reason, "width");
  auto alone = load({.target = nano("target")});
  const auto plain = alone->generate({.prompt_ids = prompt(0), .max_tokens = 8}).value();
  EXPECT_EQ(plain.mode, "plain");
  EXPECT_EQ(plain.reason, "no draft");
  EXPECT_EQ(plain.ids, speculative.ids);
  EXPECT_EQ(plain.ids, narrow.ids);
}

// Case 2 ends with an end id inside a block.
TEST(Generate, EndIdsAndStopStringsCutInsideABlock) {
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  const auto ended =
      engine->generate({.prompt_ids = prompt(2), .max_tokens = 96, .width = 16}).value();
  EXPECT_EQ(ended.finish_reason, "stop");
  const auto& eos = engine->info().eos_ids;
  EXPECT_TRUE(std::binary_search(eos.begin(), eos.end(), ended.ids.back()));
  for (std::size_t i = 0; i + 1 < ended.ids.size(); ++i) {
    EXPECT_FALSE(std::binary_search(eos.begin(), eos.end(), ended.ids[i]));
  }

  const auto whole = engine->generate({.prompt_ids = prompt(4), .max_tokens = 60}).value();
  ASSERT_GT(whole.text.size(), 40u);
  const std::string stop = whole.text.substr(20, 7);
  const std::size_t first = whole.text.find(stop);
  for (const std::uint32_t width : {1u, 16u, 0u}) {
    std::string streamed;
    const auto cut =
        engine
            ->generate({.prompt_ids = prompt(4),
                        .max_tokens = 60,
                        .width = width,
                        .stop = {stop},
                        .on_tokens = [&](std::string_view text, auto) { streamed += text; }})
            .value();
    EXPECT_EQ(cut.finish_reason, "stop");
    EXPECT_EQ(cut.text, whole.text.substr(0, first));
    EXPECT_EQ(streamed, cut.text);
  }
}

TEST(Generate, TextIsTheStreamedPiecesAndTheDecodedIds) {
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  std::string streamed;
  std::vector<std::uint32_t> ids;
  const auto result =
      engine
          ->generate({.prompt_ids = prompt(6),
                      .max_tokens = 96,
                      .on_tokens =
                          [&](std::string_view text, std::span<const std::uint32_t> now) {
                            streamed += text;
                            ids.insert(ids.end(), now.begin(), now.end());
                          }})
          .value();
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(ids, result.ids);
  EXPECT_EQ(result.text, engine->decode(result.ids, true).value());
}

TEST(Cancel, EndsLoadingPrefillAndDecodingAndLeavesTheEngineWhole) {
  std::atomic<bool> flag{true};
  EXPECT_EQ(Engine::load({.target = nano("target"), .cancel = &flag}).status().code(),
            Code::cancelled);
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  const auto want = engine->generate({.prompt_ids = prompt(1), .max_tokens = 40}).value();
  const auto none = engine->generate({.prompt_ids = prompt(1), .cancel = &flag}).value();
  EXPECT_EQ(none.finish_reason, "cancelled");
  EXPECT_TRUE(none.ids.empty());
  flag = false;
  std::size_t pieces = 0;
  const auto part = engine
                        ->generate({.prompt_ids = prompt(1),
                                    .max_tokens = 40,
                                    .on_tokens = [&](auto, auto) { flag = ++pieces == 3; },
                                    .cancel = &flag})
                        .value();
  EXPECT_EQ(part.finish_reason, "cancelled");
  ASSERT_FALSE(part.ids.empty());
  ASSERT_LE(part.ids.size(), want.ids.size());
  EXPECT_TRUE(std::equal(part.ids.begin(), part.ids.end(), want.ids.begin()));
  EXPECT_EQ(engine->generate({.prompt_ids = prompt(1), .max_tokens = 40}).value().ids, want.ids);
}

// A copy of one side of the nano pair with its configuration changed.
class ChangedModel {
 public:
  ChangedModel(const char* part, const std::function<void(nlohmann::json&)>& change) {
    static int count = 0;
    folder_ = fs::temp_directory_path() /
              ("drafthouse-model-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    fs::create_directories(folder_);
    fs::copy_file(nano(part) + "/model.safetensors", weights());
    nlohmann::json config = test::read_json(nano(part) + "/config.json");
    change(config);
    std::ofstream(folder_ / "config.json") << config;
  }
  ~ChangedModel() { fs::remove_all(folder_); }
  std::string path() const { return folder_.string(); }
  fs::path weights() const { return folder_ / "model.safetensors"; }

 private:
  fs::path folder_;
};

TEST(Pairing, ADraftThatDoesNotFitIsRefusedWithTheFieldThatDiffers) {
  const std::vector<std::pair<std::string, std::function<void(nlohmann::json&)>>> cases = {
      {"hidden_size", [](auto& c) { c["hidden_size"] = 256; }},
      {"vocab_size", [](auto& c) { c["vocab_size"] = 4096; }},
      {"num_target_layers", [](auto& c) { c["num_target_layers"] = 7; }},
      {"target_layer_ids", [](auto& c) { c["dflash_config"]["target_layer_ids"] = {1, 3, 6}; }},
      {"target_layer_ids", [](auto& c) { c["dflash_config"]["target_layer_ids"] = {1, 3, 3}; }},
      {"target_layer_ids", [](auto& c) { c["dflash_config"].erase("target_layer_ids"); }},
      {"fc.weight", [](auto& c) { c["dflash_config"]["target_layer_ids"] = {1, 3}; }},
      {"mask_token_id", [](auto& c) { c["dflash_config"]["mask_token_id"] = 5000; }},
      {"mask_token_id", [](auto& c) { c["dflash_config"].erase("mask_token_id"); }},
      {"block_size", [](auto& c) { c["block_size"] = 1; }},
      {"block_size", [](auto& c) { c["block_size"] = 1000; }},
      {"layers.2",
       [](auto& c) {
         c["num_hidden_layers"] = 3;
         c["layer_types"] = {"full_attention", "full_attention", "full_attention"};
       }},
  };
  for (const auto& [field, change] : cases) {
    const ChangedModel draft("draft", change);
    const auto engine = Engine::load({.target = nano("target"), .draft = draft.path()});
    ASSERT_FALSE(engine.ok()) << field;
    EXPECT_NE(engine.status().message().find(field), std::string::npos)
        << engine.status().message();
  }
  EXPECT_FALSE(Engine::load({.target = nano("draft")}).ok());
  EXPECT_FALSE(Engine::load({.target = nano("target"), .draft = nano("target")}).ok());
}

TEST(Load, RefusesLayersThatTheConfigurationDoesNotKnow) {
  const ChangedModel model("target", [](nlohmann::json& c) {
    c["num_hidden_layers"] = 3;
    c.erase("layer_types");
  });
  const auto engine = Engine::load({.target = model.path()});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("model.layers.3."), std::string::npos)
      << engine.status().message();
}

TEST(Load, ProgressHasOneTotalForTargetAndDraft) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;
  const auto keep = [&](std::uint64_t done, std::uint64_t total) {
    steps.push_back({done, total});
  };
  ASSERT_NE(load({.target = nano("target"), .draft = nano("draft"), .progress = keep}), nullptr);
  ASSERT_GE(steps.size(), 2u);
  std::uint64_t before = 0;
  for (const auto& [done, total] : steps) {
    EXPECT_EQ(total, steps.front().second);
    EXPECT_GE(done, before);
    before = done;
  }
  EXPECT_EQ(before, steps.front().second);
}

TEST(Load, RefusesTwoRopeSettings) {
  const ChangedModel model("target", [](nlohmann::json& c) {
    c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4}};
  });
  const auto engine = Engine::load({.target = model.path()});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("rope_scaling"), std::string::npos);
}

TEST(Generate, WeightsThatAreNotNumbersAreAnError) {
  const ChangedModel model("target", [](nlohmann::json&) {});
  {
    std::fstream file(model.weights(), std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    const std::string ones(fs::file_size(model.weights()) - 8 - header, '\xff');
    file.seekp(static_cast<std::streamoff>(8 + header));
    file << ones;
  }
  auto engine = load({.target = model.path()});
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->generate({.prompt_ids = {1, 2, 3}}).status().code(), Code::corrupt);
  EXPECT_EQ(engine->score({.ids = {1, 2, 3}}).status().code(), Code::corrupt);
}

// Peak resident memory counted anew from here.
bool reset_peak() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "we");
  if (file == nullptr) return false;
  const bool written = std::fputs("5", file) >= 0;
  return std::fclose(file) == 0 && written;
}

TEST(Memory, LoadingNeedsLittleMoreThanThePackedWeights) {
  const std::string target = test::default_model();
  if (target.empty())
    GTEST_SKIP() << "the default model is not here; tools/fetch_default_model gets it";
  if (!reset_peak()) GTEST_SKIP() << "this system cannot reset the peak";
  const std::size_t before = resident_bytes();
  auto engine = load({.target = target, .draft = test::kDefaultDraft});
  ASSERT_NE(engine, nullptr);
  const auto packed = static_cast<double>(engine->info().weight_bytes);
  EXPECT_LE(static_cast<double>(resident_bytes_peak() - before), 1.15 * packed + 200e6);
}

TEST(Memory, DoesNotGrowOverGenerations) {
  auto engine = nano_pair();
  ASSERT_NE(engine, nullptr);
  const std::vector<std::uint32_t> ids = prompt(0);
  const auto run = [&] {
    ASSERT_TRUE(engine->generate({.prompt_ids = ids, .max_tokens = 24, .ignore_eos = true}).ok());
  };
  for (int i = 0; i < 20; ++i) run();
  const std::size_t resident = resident_bytes();
  const auto tagged = engine->memory();
  for (int i = 0; i < 200; ++i) run();
  EXPECT_EQ(engine->memory(), tagged);
  EXPECT_LE(resident_bytes(), resident + (std::size_t{4} << 20));
}

}  // namespace
}  // namespace drafthouse
