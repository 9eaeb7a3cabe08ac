// Broken variants of every kind of file, made from a seed: open() and the configurations answer
// with a value or a status, whatever the bytes. Sanitizer builds run this too.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "formats/checkpoint.h"
#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::safetensors_of;
using testing::TempFolder;

constexpr int kVariants = 300;

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

std::string cut(const std::string& bytes, Random& random) {
  return bytes.substr(0, below(random, bytes.size()));
}

std::string flip(std::string bytes, Random& random) {
  for (std::size_t flips = 1 + below(random, 4); flips > 0; --flips) {
    char& byte = bytes[below(random, bytes.size())];
    byte = static_cast<char>(byte ^ (1 << below(random, 8)));
  }
  return bytes;
}

// Sizes, counts and offsets are eight or four bytes anywhere.
std::string absurd(std::string bytes, Random& random) {
  static constexpr std::uint64_t kValues[] = {~0ull, 1ull << 63, 1ull << 62, 1ull << 40, 0};
  const std::size_t width = below(random, 2) == 0 ? 8 : 4;
  const std::uint64_t value = kValues[below(random, 5)];
  for (std::size_t at = below(random, bytes.size()), i = 0; i < width; ++i, ++at) {
    if (at < bytes.size()) bytes[at] = static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

std::string shuffled(std::string bytes, Random& random) {
  const std::size_t from = below(random, bytes.size());
  const std::string part = bytes.substr(from, 1 + below(random, 40));
  const std::size_t to = below(random, bytes.size());
  return below(random, 2) == 0 ? bytes.insert(to, part) : bytes.replace(to, part.size(), part);
}

std::string mutated(const std::string& bytes, Random& random) {
  switch (below(random, 4)) {
    case 0: return cut(bytes, random);
    case 1: return flip(bytes, random);
    case 2: return absurd(bytes, random);
    default: return shuffled(bytes, random);
  }
}

// Everything a loader does with a checkpoint. Whether it was opened.
bool exercise(const std::string& path) {
  auto opened = Checkpoint::open(path);
  if (!opened.ok()) {
    EXPECT_NE(opened.status().code(), Code::internal) << opened.status().message();
    EXPECT_EQ(opened.status().message().find('\n'), std::string::npos);
    return false;
  }
  const Checkpoint& checkpoint = opened.value();
  (void)checkpoint.model_config();
  (void)checkpoint.draft_config();
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    std::vector<std::byte> out(tensor.bytes);
    // Scales may be numbers that no packed kind holds.
    const Status read = checkpoint.read(tensor, 0, out);
    EXPECT_TRUE(read.ok() || read.code() == Code::unsupported) << read.message();
  }
  return true;
}

// A folder of which one file is broken, over and over.
void break_file(const TempFolder& folder, const std::string& broken, const std::string& target,
                const std::string& whole, std::uint64_t seed) {
  Random random(seed);
  folder.write(broken, whole);
  ASSERT_TRUE(exercise(target)) << "the unbroken file";
  for (int i = 0; i < kVariants; ++i) {
    SCOPED_TRACE(i);
    folder.write(broken, mutated(whole, random));
    exercise(target);
  }
}

void expect_cuts_refused(const TempFolder& folder, const std::string& broken,
                         const std::string& target, const std::string& whole) {
  Random random(7);
  for (int i = 0; i < kVariants; ++i) {
    folder.write(broken, cut(whole, random));
    EXPECT_FALSE(Checkpoint::open(target).ok()) << i;
  }
  folder.write(broken, whole.substr(0, whole.size() - 1));
  EXPECT_FALSE(Checkpoint::open(target).ok());
}

void write_folder(const TempFolder& folder) {
  folder.write("model.safetensors", safetensors_of({{"model.norm.weight", {8}}, {"b", {2, 3}}}));
  folder.write("config.json", testing::kTinyConfig);
  folder.write("generation_config.json", R"({"eos_token_id": [2, 1], "do_sample": false})");
}

TEST(BrokenFiles, Safetensors) {
  TempFolder folder;
  write_folder(folder);
  const std::string whole = safetensors_of({{"a", {4, 4}}, {"b", {3}}, {"c", {2, 2, 2}}});
  break_file(folder, "model.safetensors", folder.path(), whole, 1);
  expect_cuts_refused(folder, "model.safetensors", folder.path(), whole);
}

void write_mlx_folder(const TempFolder& folder) {
  folder.write("model.safetensors", testing::typed_safetensors({{"m.weight", "U32", {2, 8}, 4},
                                                                {"m.scales", "BF16", {2, 1}, 2},
                                                                {"m.biases", "BF16", {2, 1}, 2}}));
  folder.write("config.json", testing::replaced(testing::kTinyConfig, "\"hidden_act\"",
                                                R"("quantization": {"group_size": 64, "bits": 4,
      "m": {"bits": 4, "mode": "affine"}, "n": false}, "hidden_act")"));
}

TEST(BrokenFiles, QuantisedSafetensors) {
  TempFolder folder;
  write_mlx_folder(folder);
  const std::string whole = testing::read_text(folder / "model.safetensors");
  break_file(folder, "model.safetensors", folder.path(), whole, 11);
  expect_cuts_refused(folder, "model.safetensors", folder.path(), whole);
  write_mlx_folder(folder);
  const std::string config = testing::read_text(folder / "config.json");
  break_file(folder, "config.json", folder.path(), config, 12);
}

// The configuration of a folder whose weights are quantised in another form than their names say.
void write_quantised(const TempFolder& folder, const std::string& said,
                     const std::vector<testing::TypedTensor>& tensors) {
  folder.write("model.safetensors", testing::typed_safetensors(tensors));
  folder.write("config.json", testing::replaced(testing::kTinyConfig, "\"hidden_act\"",
                                                said + ", \"hidden_act\""));
}

void break_quantised(const TempFolder& folder, std::uint64_t seed) {
  const std::string weights = testing::read_text(folder / "model.safetensors");
  const std::string config = testing::read_text(folder / "config.json");
  break_file(folder, "model.safetensors", folder.path(), weights, seed);
  expect_cuts_refused(folder, "model.safetensors", folder.path(), weights);
  folder.write("model.safetensors", weights);
  break_file(folder, "config.json", folder.path(), config, seed + 1);
}

TEST(BrokenFiles, CompressedTensors) {
  const auto said = [](const char* weights) {
    return fmt::format(R"("quantization_config": {{"quant_method": "compressed-tensors",
      "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {{"group_0": {{
      "targets": ["Linear"], "weights": {{"type": "int", {}}}}}}}}})",
                       weights);
  };
  TempFolder groups;
  write_quantised(groups, said(R"("num_bits": 4, "symmetric": true, "group_size": 32)"),
                  {{"m.weight_packed", "I32", {2, 8}, 4},
                   {"m.weight_scale", "BF16", {2, 2}, 2},
                   {"m.weight_shape", "I64", {2}, 8}});
  break_quantised(groups, 15);
  TempFolder zeros;
  write_quantised(zeros, said(R"("num_bits": 2, "symmetric": false, "strategy": "channel")"),
                  {{"m.weight_packed", "I32", {17, 4}, 4},
                   {"m.weight_scale", "F16", {17, 1}, 2},
                   {"m.weight_zero_point", "I32", {2, 1}, 4},
                   {"m.weight_shape", "I64", {2}, 8}});
  break_quantised(zeros, 17);
}

TEST(BrokenFiles, BlockScaledFp8) {
  TempFolder folder;
  write_quantised(folder, R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
      "weight_block_size": [2, 16], "activation_scheme": "dynamic"})",
                  {{"m.weight", "F8_E4M3", {3, 20}, 1}, {"m.weight_scale_inv", "BF16", {2, 2}, 2}});
  break_quantised(folder, 19);
}

TEST(BrokenFiles, ShardedGguf) {
  TempFolder folder;
  const auto numbered = [](testing::GgufBuilder file, std::uint16_t number) {
    return file.add("split.no", 2, testing::raw(number))
        .add("split.count", 2, testing::raw<std::uint16_t>(2))
        .build();
  };
  testing::GgufBuilder rest;
  rest.tensor("k.weight", {256, 2}, 12, std::string(288, 'x'));
  const std::string first = numbered(testing::tiny_gguf("llama"), 0);
  const std::string second = numbered(rest, 1);
  const std::string path = folder.write("m-00001-of-00002.gguf", first);
  folder.write("m-00002-of-00002.gguf", second);
  break_file(folder, "m-00002-of-00002.gguf", path, second, 13);
  expect_cuts_refused(folder, "m-00002-of-00002.gguf", path, second);
  folder.write("m-00002-of-00002.gguf", second);
  break_file(folder, "m-00001-of-00002.gguf", path, first, 14);
}

TEST(BrokenFiles, Shards) {
  TempFolder folder;
  folder.write("m-1.safetensors", safetensors_of({{"a", {4, 4}}}));
  const std::string second = safetensors_of({{"b", {3}}, {"c", {2, 2, 2}}});
  folder.write("m-2.safetensors", second);
  const std::string index =
      R"({"metadata": {"total_size": 108}, "weight_map": {)"
      R"("a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-2.safetensors"}})";
  break_file(folder, "model.safetensors.index.json", folder.path(), index, 2);
  expect_cuts_refused(folder, "model.safetensors.index.json", folder.path(), index);
  folder.write("model.safetensors.index.json", index);
  break_file(folder, "m-2.safetensors", folder.path(), second, 3);
  expect_cuts_refused(folder, "m-2.safetensors", folder.path(), second);
}

TEST(BrokenFiles, Gguf) {
  TempFolder folder;
  const std::string whole = testing::tiny_gguf("llama").build();
  break_file(folder, "model.gguf", folder / "model.gguf", whole, 4);
  expect_cuts_refused(folder, "model.gguf", folder / "model.gguf", whole);
}

TEST(BrokenFiles, DraftGguf) {
  TempFolder folder;
  const std::string whole = testing::tiny_draft_gguf().build();
  break_file(folder, "model.gguf", folder / "model.gguf", whole, 5);
  expect_cuts_refused(folder, "model.gguf", folder / "model.gguf", whole);
}

TEST(BrokenFiles, Configurations) {
  TempFolder folder;
  write_folder(folder);
  const std::string config(testing::kTinyConfig);
  break_file(folder, "config.json", folder.path(), config, 6);
  expect_cuts_refused(folder, "config.json", folder.path(), config);
  const std::string draft(testing::kTinyDraftConfig);
  break_file(folder, "config.json", folder.path(), draft, 7);
  folder.write("config.json", config);
  const std::string generation = R"({"eos_token_id": [2, 1], "do_sample": false})";
  break_file(folder, "generation_config.json", folder.path(), generation, 8);
  expect_cuts_refused(folder, "generation_config.json", folder.path(), generation);
}

TEST(BrokenFiles, TokenizerFiles) {
  TempFolder folder;
  write_folder(folder);
  const std::string config = R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",)"
                             R"("chat_template": [{"name": "default", "template": "{{ x }}"}]})";
  break_file(folder, "tokenizer_config.json", folder.path(), config, 9);
  expect_cuts_refused(folder, "tokenizer_config.json", folder.path(), config);
  folder.write("tokenizer_config.json", config);
  const std::string tokenizer =
      R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "</s>"},)"
      R"({"id": 4, "content": "<|im_end|>"}], "model": {"vocab": {"a": 0}}})";
  break_file(folder, "tokenizer.json", folder.path(), tokenizer, 10);
}

// Every aligned count of a header set to an absurd value, one after the other.
TEST(BrokenFiles, AbsurdCountsAreRefused) {
  TempFolder folder;
  const std::string whole = testing::tiny_gguf("llama").build();
  const auto with = [&](std::size_t at, std::uint64_t value) {
    std::string bytes = whole;
    return bytes.replace(at, 8, testing::raw(value));
  };
  for (const std::uint64_t value : {~0ull, 1ull << 63, 1ull << 40, 1ull << 24}) {
    // Tensor count, key count, and the length of the first key.
    for (const std::size_t at : {8u, 16u, 24u}) {
      folder.write("model.gguf", with(at, value));
      EXPECT_FALSE(Checkpoint::open(folder / "model.gguf").ok()) << at << " " << value;
    }
  }
  write_folder(folder);
  const std::string tensors = safetensors_of({{"a", {4, 4}}});
  for (const std::uint64_t value : {~0ull, 1ull << 63, 1ull << 40, 1ull << 20, 0ull}) {
    std::string bytes = tensors;
    folder.write("model.safetensors", bytes.replace(0, 8, testing::raw(value)));
    EXPECT_FALSE(Checkpoint::open(folder / "model.safetensors").ok()) << value;
  }
  for (const char* field : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                            "intermediate_size", "max_position_embeddings", "head_dim"}) {
    for (const char* value : {"0", "-1", "1e300", "99999999999999999999999", "4294967296", "[]",
                              "{}", "\"8\"", "true"}) {
      TempFolder other;
      write_folder(other);
      const std::string key = fmt::format("\"{}\": ", field);
      const std::string config(testing::kTinyConfig);
      const std::size_t at = config.find(key) + key.size();
      std::string changed = config;
      changed.replace(at, config.find(',', at) - at, value);
      other.write("config.json", changed);
      auto opened = Checkpoint::open(other.path());
      EXPECT_FALSE(opened.ok() && opened.value().model_config().ok()) << field << " " << value;
    }
  }
}

}  // namespace
}  // namespace drafthouse
