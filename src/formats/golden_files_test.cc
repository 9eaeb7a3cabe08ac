// Real checkpoints: the small ones of tests/data always, the larger set when DRAFTHOUSE_TEST_DATA
// names its folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/test_files.h"

namespace drafthouse {
namespace {

using Ids = std::vector<std::uint32_t>;

std::optional<std::string> test_data() {
  const char* folder = std::getenv("DRAFTHOUSE_TEST_DATA");
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return std::nullopt;
  return std::string(folder);
}

Checkpoint open(const std::string& path) {
  auto opened = Checkpoint::open(path);
  if (!opened.ok()) throw std::runtime_error(opened.status().message());
  return std::move(opened).value();
}

void expect_nano_qwen3(const ModelConfig& config) {
  EXPECT_EQ(config.family, "qwen3");
  EXPECT_EQ(config.hidden_size, 192u);
  EXPECT_EQ(config.layers, 6u);
  EXPECT_EQ(config.heads, 3u);
  EXPECT_EQ(config.kv_heads, 1u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.intermediate_size, 512u);
  EXPECT_EQ(config.vocab_size, 2048u);
  EXPECT_EQ(config.max_positions, 8192u);
  EXPECT_FLOAT_EQ(static_cast<float>(config.rms_eps), 1e-6f);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_FALSE(config.interleaved_rope_rows);
}

TEST(GoldenFiles, NanoQwen3IsTheSameModelInBothFormats) {
  const std::string root = "tests/data/models/nano-qwen3/";
  if (!std::filesystem::is_directory(root)) GTEST_SKIP() << root << " is not there";
  const Checkpoint folder = open(root + "target");
  ASSERT_TRUE(folder.model_config().ok()) << folder.model_config().status().message();
  expect_nano_qwen3(folder.model_config().value());
  EXPECT_EQ(folder.model_config().value().eos_ids, (Ids{2038, 2040}));
  EXPECT_EQ(folder.tokenizer().eos_token, "<|im_end|>");
  EXPECT_TRUE(folder.tokenizer().chat_template.has_value());
  for (const char* name : {"Q4_0", "Q8_0"}) {
    const Checkpoint gguf = open(root + "gguf/nano-qwen3." + name + ".gguf");
    ASSERT_TRUE(gguf.model_config().ok()) << gguf.model_config().status().message();
    expect_nano_qwen3(gguf.model_config().value());
    EXPECT_EQ(gguf.model_config().value().eos_ids, (Ids{2038, 2040}));
    EXPECT_EQ(gguf.tokenizer().gguf->tokens.size(), 2048u);
    EXPECT_EQ(gguf.tokenizer().chat_template, folder.tokenizer().chat_template);
    ASSERT_EQ(gguf.tensors().size(), folder.tensors().size());
    for (std::size_t i = 0; i < gguf.tensors().size(); ++i) {
      EXPECT_EQ(gguf.tensors()[i].name, folder.tensors()[i].name);
      EXPECT_EQ(gguf.tensors()[i].shape, folder.tensors()[i].shape);
    }
  }
}

TEST(GoldenFiles, TheDefaultDraft) {
  const std::string path = "models/smollm2-135m-dflash.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Checkpoint draft = open(path);
  ASSERT_TRUE(draft.is_draft());
  auto read = draft.draft_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().target_layer_ids, (Ids{1, 8, 15, 22, 27}));
  EXPECT_EQ(read.value().num_target_layers, 30u);
  EXPECT_EQ(read.value().mask_id, 4u);
  EXPECT_EQ(read.value().block_size, 16u);
  EXPECT_EQ(read.value().vocab_size, 49152u);
  EXPECT_EQ(read.value().rope.theta, 100000.0);
  const TensorInfo* fc = draft.find("fc.weight");
  ASSERT_NE(fc, nullptr);
  EXPECT_EQ(fc->shape, (std::vector<std::uint64_t>{576, 5 * 576}));
  EXPECT_EQ(fc->dtype, Dtype::q8_0);
}

TEST(GoldenFiles, TheConverterKeepsADraftAsItIs) {
  const std::string source = "tests/data/models/nano-qwen3/draft";
  if (!std::filesystem::is_directory(source)) GTEST_SKIP() << source << " is not there";
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "no numpy";
  testing::TempFolder folder;
  const std::string path = folder / "draft.gguf";
  ASSERT_EQ(std::system(("python3 tools/make_draft_gguf.py " + source + " " + path +
                         " --name nano --bf16 >/dev/null")
                            .c_str()),
            0);
  const Checkpoint before = open(source);
  const Checkpoint after = open(path);
  const DraftConfig a = before.draft_config().value();
  auto read = after.draft_config();
  ASSERT_TRUE(read.ok()) << read.status().message();
  const DraftConfig& b = read.value();
  EXPECT_EQ(a.target_layer_ids, b.target_layer_ids);
  EXPECT_EQ(a.layer_types, b.layer_types);
  EXPECT_EQ(a.mask_id, b.mask_id);
  EXPECT_EQ(a.block_size, b.block_size);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.num_target_layers, b.num_target_layers);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const TensorInfo& tensor : before.tensors()) {
    const TensorInfo* twin = after.find(tensor.name);
    ASSERT_NE(twin, nullptr) << tensor.name;
    EXPECT_EQ(twin->shape, tensor.shape) << tensor.name;
    if (twin->dtype != tensor.dtype) continue;
    std::vector<std::byte> x(tensor.bytes), y(twin->bytes);
    ASSERT_TRUE(before.read(tensor, 0, x).ok());
    ASSERT_TRUE(after.read(*twin, 0, y).ok());
    EXPECT_EQ(x, y) << tensor.name;
  }
}

TEST(GoldenFiles, EveryDraftOfTheTestData) {
  const auto root = test_data();
  if (!root) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA names no folder";
  for (const char* name : {"nano-qwen3", "nano-qwen3_5", "nano-gemma4"}) {
    if (!std::filesystem::exists(*root + "/models/" + name + "/draft"))
      continue;  // in larger sets only
    auto read = open(*root + "/models/" + name + "/draft").draft_config();
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read.value().target_layer_ids, (Ids{1, 3, 4})) << name;
    EXPECT_EQ(read.value().layers, 2u);
    EXPECT_FALSE(read.value().causal_in_block(0));
  }
  auto swa = open(*root + "/tiny-drafts/v1-swa/draft").draft_config();
  ASSERT_TRUE(swa.ok()) << swa.status().message();
  EXPECT_EQ(swa.value().sliding_window, 32u);
  EXPECT_TRUE(swa.value().causal_in_block(0));
  EXPECT_FALSE(swa.value().causal_in_block(4));
  auto causal = open(*root + "/tiny-drafts/v1-causal-flag/draft").draft_config();
  ASSERT_TRUE(causal.ok());
  EXPECT_EQ(causal.value().is_causal, true);
  EXPECT_TRUE(causal.value().causal_in_block(0));
  auto gemma = open(*root + "/tiny-drafts/v1-gemma-style/draft").draft_config();
  ASSERT_TRUE(gemma.ok());
  EXPECT_EQ(gemma.value().input_embedding_scale, 8.0);
  EXPECT_EQ(gemma.value().output_multiplier, 0.25);
  EXPECT_EQ(gemma.value().final_logit_softcapping, 20.0);
  for (const char* name : {"dflash2", "speculators"}) {
    if (!std::filesystem::exists(*root + "/tiny-drafts/" + name)) continue;
    const Checkpoint other = open(*root + "/tiny-drafts/" + name + "/draft");
    EXPECT_TRUE(other.is_draft());
    EXPECT_TRUE(other.draft_config().ok()) << name;
  }
}

TEST(GoldenFiles, EveryTinyModelOfTheTestData) {
  const auto root = test_data();
  if (!root) GTEST_SKIP() << "DRAFTHOUSE_TEST_DATA names no folder";
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*root + "/tiny")) {
    auto opened = Checkpoint::open(entry.path().string());
    const std::string name = entry.path().filename().string();
    const Status status =
        opened.ok()
            ? opened.value().model_config().ok() ? Status() : opened.value().model_config().status()
            : opened.status();
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
    ++families;
  }
  EXPECT_GT(families, 3);
  const ModelConfig llama = open(*root + "/tiny/llama").model_config().value();
  EXPECT_EQ(llama.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama.rope.factor, 8.0);
  EXPECT_EQ(llama.rope.original_max_positions, 32.0);
  EXPECT_FALSE(llama.tied_head);
}

}  // namespace
}  // namespace drafthouse
