#include "formats/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::safetensors_of;
using testing::TempFolder;

constexpr std::string_view kIndex = "model.safetensors.index.json";

TEST(Checkpoint, ReadsASingleFile) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({{"b", {2}}, {"a", {3}}}));
  folder.write("config.json", testing::kTinyConfig);
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& checkpoint = opened.value();
  EXPECT_EQ(checkpoint.path(), folder.path());
  EXPECT_EQ(checkpoint.format(), "safetensors");
  EXPECT_EQ(checkpoint.bytes(), 20u);
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(checkpoint.find("none"), nullptr);
  EXPECT_FALSE(checkpoint.is_draft());
  EXPECT_TRUE(checkpoint.model_config().ok());

  const TensorInfo& tensor = *checkpoint.find("a");
  std::vector<std::byte> out(8, std::byte{0});
  ASSERT_TRUE(checkpoint.read(tensor, 4, out).ok());
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_EQ(checkpoint.read(tensor, 5, out).code(), Code::invalid_argument);
  EXPECT_EQ(checkpoint.read(tensor, ~std::uint64_t{0}, out).code(), Code::invalid_argument);
}

TEST(Checkpoint, KeepsReadingAFileThatWasReplaced) {
  TempFolder folder;
  const std::string path = folder.write("model.safetensors", safetensors_of({{"a", {3}}}));
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok());
  std::filesystem::remove(path);
  folder.write("model.safetensors", "other");
  std::vector<std::byte> out(12);
  EXPECT_TRUE(opened.value().read(*opened.value().find("a"), 0, out).ok());
}

TEST(Checkpoint, AFileCutAfterOpeningIsAnErrorThatNamesTheTensor) {
  TempFolder folder;
  const std::string path = folder.write("model.safetensors", safetensors_of({{"a", {3}}}));
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::vector<std::byte> out(12);
  const Status read = opened.value().read(*opened.value().find("a"), 0, out);
  EXPECT_EQ(read.code(), Code::corrupt);
  EXPECT_NE(read.message().find("'a'"), std::string::npos);
  EXPECT_NE(read.message().find(path), std::string::npos);
}

TEST(Checkpoint, ReadsShards) {
  TempFolder folder;
  folder.write("m-1.safetensors", safetensors_of({{"a", {3}}}));
  folder.write("m-2.safetensors", safetensors_of({{"b", {2}}, {"extra", {1}}}));
  folder.write(kIndex, R"({"metadata": {"total_size": 1},
                           "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().files().size(), 2u);
  EXPECT_EQ(opened.value().tensors().size(), 3u);
  EXPECT_EQ(opened.value().find("b")->file, 1u);
  EXPECT_EQ(opened.value().model_config().status().code(), Code::not_found);
}

TEST(Checkpoint, RefusesBrokenShardsByName) {
  struct Case {
    std::string index;
    Code code;
    std::string named;
  };
  const std::vector<Case> all = {
      {R"({"weight_map": {"a": "m-1.safetensors", "b": "m-3.safetensors"}})", Code::not_found,
       "m-3.safetensors"},
      {R"({"weight_map": {"a": "m-2.safetensors", "b": "m-2.safetensors"}})", Code::corrupt, "'a'"},
      {R"({"weight_map": {"a": "m-1.safetensors", "c": "m-1.safetensors"}})", Code::corrupt, "'c'"},
      {R"({"weight_map": {"a": "../m-1.safetensors"}})", Code::corrupt, "'a'"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", Code::corrupt, "'a'"},
      {R"({"weight_map": {"a": ".."}})", Code::corrupt, "'a'"},
      {R"({"weight_map": {"a": 1}})", Code::corrupt, "'a'"},
      {R"({"weight_map": {"a": "m-1.safetensors", "a": "m-2.safetensors"}})", Code::corrupt,
       "twice"},
      {R"({"weight_map": {}})", Code::corrupt, "weight_map"},
      {R"({})", Code::corrupt, "weight_map"},
      {"[", Code::corrupt, "JSON"},
      {R"({"weight_map": {"a": "m-1.safetensors", "b": "same.safetensors"}})", Code::corrupt,
       "'a'"},
      {R"({"weight_map": {"a": "empty.safetensors"}})", Code::corrupt, "empty.safetensors"},
  };
  for (const Case& one : all) {
    TempFolder folder;
    folder.write("m-1.safetensors", safetensors_of({{"a", {3}}}));
    folder.write("m-2.safetensors", safetensors_of({{"b", {2}}}));
    folder.write("same.safetensors", safetensors_of({{"a", {2}}, {"b", {2}}}));
    folder.write("empty.safetensors", "");
    folder.write(kIndex, one.index);
    auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << one.index;
    EXPECT_EQ(opened.status().code(), one.code) << opened.status().message();
    EXPECT_NE(opened.status().message().find(one.named), std::string::npos)
        << opened.status().message();
  }
}

TEST(Checkpoint, ChoosesTheWeightsOfAFolder) {
  TempFolder folder;
  EXPECT_EQ(Checkpoint::open(folder.path()).status().code(), Code::not_found);
  folder.write("other.safetensors", safetensors_of({{"a", {3}}}));
  EXPECT_TRUE(Checkpoint::open(folder.path()).ok());
  folder.write("second.safetensors", safetensors_of({{"b", {3}}}));
  EXPECT_EQ(Checkpoint::open(folder.path()).status().code(), Code::not_found);
  folder.write("model.safetensors", safetensors_of({{"c", {3}}}));
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok());
  EXPECT_NE(opened.value().find("c"), nullptr);
}

TEST(Checkpoint, ChoosesTheOnlyGgufOfAFolder) {
  TempFolder folder;
  folder.write("a.gguf", testing::tiny_gguf("qwen3").build());
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().path(), folder / "a.gguf");
  folder.write("b.gguf", "x");
  EXPECT_EQ(Checkpoint::open(folder.path()).status().code(), Code::invalid_argument);
}

TEST(Checkpoint, OpensAWeightFileAloneForInspection) {
  TempFolder folder;
  const std::string path = folder.write("x.safetensors", safetensors_of({{"a", {3}}}));
  auto opened = Checkpoint::open(path);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened.value().tensors().size(), 1u);
  EXPECT_EQ(opened.value().model_config().status().code(), Code::not_found);
  EXPECT_EQ(opened.value().draft_config().status().code(), Code::not_found);
  EXPECT_EQ(Checkpoint::open(folder.write("x.bin", "x")).status().code(), Code::invalid_argument);
}

TEST(Checkpoint, TellsDraftsAndTargetsApart) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({{"fc.weight", {3}}}));
  folder.write("config.json", testing::kTinyDraftConfig);
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened.value().is_draft());
  EXPECT_TRUE(opened.value().draft_config().ok());
  const Status as_target = opened.value().model_config().status();
  EXPECT_EQ(as_target.code(), Code::invalid_argument);
  EXPECT_NE(as_target.message().find("draft"), std::string::npos);
}

TEST(Checkpoint, NamedPipesAndFoldersDoNotBlockIt) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "model.safetensors");
  EXPECT_FALSE(Checkpoint::open(folder.path()).ok());
  ASSERT_EQ(::mkfifo((folder / "pipe.gguf").c_str(), 0600), 0);
  EXPECT_EQ(Checkpoint::open(folder / "pipe.gguf").status().code(), Code::invalid_argument);
}

TEST(Checkpoint, LinksThatLeadNowhereAreNamedWithTheReason) {
  namespace fs = std::filesystem;
  const auto complaint = [](const std::string& path) {
    auto opened = Checkpoint::open(path);
    return opened.ok() ? "" : opened.status().message();
  };
  TempFolder folder;
  fs::create_symlink("loop", folder / "loop");
  EXPECT_EQ(complaint(folder / "loop"), (folder / "loop") + ": Too many levels of symbolic links");
  fs::create_symlink("none", folder / "dangling");
  EXPECT_EQ(complaint(folder / "dangling"),
            (folder / "dangling") + ": is a link to something that is not there");
  for (const char* target : {"none", "x"}) {
    for (const char* name : {"model.safetensors", "config.json", "generation_config.json",
                             "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                             "model.safetensors.index.json", "model.gguf"}) {
      TempFolder model;
      fs::create_symlink("x", model / "x");
      if (std::string(name) != "model.safetensors" && !std::string(name).ends_with("gguf")) {
        model.write("model.safetensors", safetensors_of({{"a", {3}}}));
      }
      fs::create_symlink(target, model / name);
      EXPECT_TRUE(complaint(model.path()).starts_with((model / name) + ": "))
          << complaint(model.path());
    }
  }
  TempFolder shards;
  shards.write(kIndex, R"({"weight_map": {"a": "m-1.safetensors"}})");
  fs::create_symlink("m-1.safetensors", shards / "m-1.safetensors");
  EXPECT_EQ(complaint(shards.path()),
            (shards / "m-1.safetensors") + ": Too many levels of symbolic links");
}

TEST(HfText, TakesTheTemplateFromTheFirstSource) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({{"a", {3}}}));
  using Found = std::pair<std::optional<std::string>, std::string>;
  const auto found = [&]() -> Found {
    auto opened = Checkpoint::open(folder.path());
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    const TokenizerSource& source = opened.value().tokenizer();
    return {source.chat_template, std::filesystem::path(source.template_origin).filename()};
  };
  EXPECT_EQ(found(), Found(std::nullopt, ""));
  folder.write("chat_template.json", R"({"chat_template": "last"})");
  EXPECT_EQ(found(), Found("last", "chat_template.json"));
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                            {"name": "default", "template": "middle"}]})");
  EXPECT_EQ(found(), Found("middle", "tokenizer_config.json"));
  folder.write("tokenizer_config.json", R"({"chat_template": "plain"})");
  EXPECT_EQ(found(), Found("plain", "tokenizer_config.json"));
  folder.write("chat_template.jinja", "first");
  EXPECT_EQ(found(), Found("first", "chat_template.jinja"));
}

TEST(HfText, FindsStopTokens) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({{"a", {3}}}));
  folder.write("config.json", testing::kTinyConfig);
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>"})");
  folder.write("tokenizer.json", R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true},
    {"id": 3, "content": "<s>"}, {"id": 4, "content": "<|im_end|>"}], "model": {"vocab": {}}})");
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().tokenizer().bos_token, "<s>");
  EXPECT_EQ(opened.value().tokenizer().eos_token, "</s>");
  EXPECT_TRUE(opened.value().tokenizer().has_tokenizer());
  EXPECT_EQ(opened.value().model_config().value().eos_ids, (std::vector<std::uint32_t>{1, 2, 4}));
}

TEST(HfText, ABrokenFileIsNamed) {
  for (const char* name :
       {"tokenizer_config.json", "config.json", "generation_config.json", "chat_template.json"}) {
    TempFolder folder;
    folder.write("model.safetensors", safetensors_of({{"a", {3}}}));
    const std::string path = folder.write(name, "{\"a\":");
    auto opened = Checkpoint::open(folder.path());
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_EQ(opened.status().code(), Code::corrupt);
    EXPECT_EQ(opened.status().message().rfind(path, 0), 0u) << opened.status().message();
  }
}

// Convolutions with their taps before the last axis are a sign of MLX, whose norms have their 1.
TEST(Checkpoint, ConvolutionsHaveOneShape) {
  constexpr std::string_view kConfig = R"({
      "model_type": "qwen3_5_text", "hidden_size": 8, "num_hidden_layers": 1,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12,
      "vocab_size": 6, "max_position_embeddings": 64, "layer_types": ["linear_attention"],
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 4, "linear_num_key_heads": 1,
      "linear_num_value_heads": 1, "linear_value_head_dim": 4})";
  const std::string name = "model.layers.0.linear_attn.conv1d.weight";
  for (const bool mlx : {false, true}) {
    testing::TempFolder folder;
    folder.write("config.json", kConfig);
    std::vector<std::uint64_t> shape{12, 1, 4};
    if (mlx) shape = {12, 4, 1};
    folder.write("model.safetensors",
                 testing::safetensors_of({{mlx ? "language_model." + name : name, shape}}));
    auto opened = Checkpoint::open(folder.path());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const TensorInfo* taps = opened.value().find(name);
    ASSERT_NE(taps, nullptr);
    EXPECT_EQ(taps->shape, (std::vector<std::uint64_t>{12, 1, 4}));
    auto config = opened.value().model_config();
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config.value().gain_from_one, !mlx);
  }
}

}  // namespace
}  // namespace drafthouse
