#include "formats/quantisation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "formats/gguf_shards.h"
#include "formats/test_files.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

using testing::kTinyConfig;
using testing::replaced;
using testing::TempFolder;
using testing::TypedTensor;

std::string with(std::string_view field) {
  return replaced(kTinyConfig, "\"hidden_act\"", std::string(field) + ", \"hidden_act\"");
}

// A folder with one module of 2 outputs and 128 inputs: 4 bits in groups of 64.
struct Folder {
  std::string config = with(R"("quantization": {"group_size": 64, "bits": 4})");
  std::vector<TypedTensor> tensors = {{"m.weight", "U32", {2, 16}, 4},
                                      {"m.scales", "BF16", {2, 2}, 2},
                                      {"m.biases", "BF16", {2, 2}, 2},
                                      {"norm.weight", "F32", {8}, 4}};

  Result<Checkpoint> open() const {
    folder.write("model.safetensors", testing::typed_safetensors(tensors));
    folder.write("config.json", config);
    return Checkpoint::open(folder.path());
  }
  TempFolder folder;
};

TEST(Quantisation, JoinsTheTensorsOfAnAffineModule) {
  const Folder folder;
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().tensors().size(), 2u);
  const TensorInfo* m = opened.value().find("m.weight");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->row_format(), RowFormat(Dtype::affine, 4, 64, Dtype::bf16));
  EXPECT_EQ(m->shape, (std::vector<std::uint64_t>{2, 128}));
  EXPECT_EQ(m->bytes, 2 * row_bytes(m->row_format(), 128));
  EXPECT_TRUE(opened.value().model_config().ok());
}

// Bytes of the test's tensors count up, so a row shows where it came from.
TEST(Quantisation, RowsArePutTogetherFromTheirParts) {
  const Folder folder;
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok());
  const TensorInfo& m = *opened.value().find("m.weight");
  std::vector<std::byte> rows(m.bytes);
  ASSERT_TRUE(opened.value().read(m, 0, rows).ok());
  ASSERT_EQ(rows.size(), 2u * 72);
  for (std::size_t row = 0; row < 2; ++row) {
    const std::byte* at = rows.data() + row * 72;
    EXPECT_EQ(static_cast<std::size_t>(at[0]), row * 64);
    EXPECT_EQ(static_cast<std::size_t>(at[63]), row * 64 + 63);
    EXPECT_EQ(static_cast<std::size_t>(at[64]), 128 + row * 4);
    EXPECT_EQ(static_cast<std::size_t>(at[68]), 136 + row * 4);
  }
  std::vector<std::byte> second(72);
  ASSERT_TRUE(opened.value().read(m, 72, second).ok());
  EXPECT_TRUE(std::equal(second.begin(), second.end(), rows.begin() + 72));
  EXPECT_EQ(opened.value().read(m, 4, second).code(), Code::invalid_argument);
}

TEST(Quantisation, EntriesOfModulesReplaceTheRest) {
  Folder folder;
  folder.config = with(R"("quantization": {"group_size": 64, "bits": 4,
      "m": {"group_size": 32, "bits": 8}, "plain": false})");
  folder.tensors = {{"m.weight", "U32", {2, 8}, 4},
                    {"m.scales", "F16", {2, 1}, 2},
                    {"m.biases", "F16", {2, 1}, 2},
                    {"plain.weight", "BF16", {2, 4}, 2},
                    {"other.weight", "BF16", {2, 4}, 2}};
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().find("m.weight")->row_format(),
            RowFormat(Dtype::affine, 8, 32, Dtype::f16));
  EXPECT_EQ(opened.value().find("plain.weight")->dtype, Dtype::bf16);
  EXPECT_EQ(opened.value().find("other.weight")->dtype, Dtype::bf16);
}

// MLX's own names: a wrapper's prefix, stacked experts. The configuration calls modules by them.
TEST(Quantisation, EntriesAreNamedAsInTheFile) {
  Folder folder;
  folder.config = with(R"("quantization": {"group_size": 64, "bits": 4,
      "language_model.model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}})");
  const std::string mlp = "language_model.model.layers.0.mlp.";
  folder.tensors.clear();
  for (const std::string part : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string module = mlp + "switch_mlp." + part;
    folder.tensors.push_back({module + ".weight", "U32", {2, 2, 8}, 4});
    folder.tensors.push_back({module + ".scales", "BF16", {2, 2, 1}, 2});
    folder.tensors.push_back({module + ".biases", "BF16", {2, 2, 1}, 2});
  }
  folder.tensors.push_back({mlp + "gate.weight", "U32", {2, 16}, 4});
  folder.tensors.push_back({mlp + "gate.scales", "BF16", {2, 1}, 2});
  folder.tensors.push_back({mlp + "gate.biases", "BF16", {2, 1}, 2});
  folder.tensors.push_back(
      {"language_model.model.layers.0.experts.switch_glu.up_proj.weight", "BF16", {2, 2, 8}, 2});
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Checkpoint& checkpoint = opened.value();
  EXPECT_EQ(checkpoint.find("model.layers.0.mlp.gate.weight")->bits, 8u);
  const TensorInfo* stacked = checkpoint.find("model.layers.0.mlp.experts.up_proj.weight");
  ASSERT_NE(stacked, nullptr);
  EXPECT_EQ(stacked->shape, (std::vector<std::uint64_t>{2, 2, 64}));
  EXPECT_NE(checkpoint.find("model.layers.0.experts.up_proj.weight"), nullptr);
}

std::string compressed(std::string_view weights, std::string_view more = "") {
  return with(fmt::format(R"("quantization_config": {{"quant_method": "compressed-tensors",
      "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {{"group_0": {{
      "targets": ["Linear"], "weights": {{"num_bits": 4, "type": "int", {}}}}}}}{}}})",
                          weights, more));
}

// The numbers of a row of the tensors below: codes count up, so do scales.
std::vector<float> numbers_of(const Checkpoint& checkpoint, std::uint64_t row) {
  const TensorInfo& m = *checkpoint.find("m.weight");
  const std::uint64_t bytes = m.bytes / m.shape[0];
  std::vector<std::byte> raw(bytes);
  EXPECT_TRUE(checkpoint.read(m, row * bytes, raw).ok());
  const std::uint64_t inputs = m.shape[1];
  const std::uint64_t groups = inputs / m.group;
  const std::uint64_t size = layout_of(m.scale).block_bytes;
  const auto number = [&](std::uint64_t at) {
    float value = 0;
    std::uint16_t half = 0;
    if (size == 4) std::memcpy(&value, raw.data() + at, 4);
    if (size == 2) std::memcpy(&half, raw.data() + at, 2);
    return size == 4 ? value : m.scale == Dtype::bf16 ? bf16_to_float(half) : half_to_float(half);
  };
  std::vector<float> out;
  for (std::uint64_t k = 0; k < inputs; ++k) {
    const int byte = static_cast<int>(raw[k * m.bits / 8]);
    const int code = m.bits == 8 ? byte : byte >> k % 2 * 4 & 15;
    const std::uint64_t scale = inputs * m.bits / 8 + k / m.group * size;
    out.push_back(number(scale) * static_cast<float>(code) + number(scale + groups * size));
  }
  return out;
}

TEST(Quantisation, ReadsPackedWholeNumbers) {
  Folder folder;
  folder.config = compressed(R"("symmetric": true, "strategy": "group", "group_size": 32)");
  folder.tensors = {{"m.weight_packed", "I32", {2, 8}, 4},
                    {"m.weight_scale", "BF16", {2, 2}, 2},
                    {"m.weight_shape", "I64", {2}, 8},
                    {"norm.weight", "F32", {8}, 4}};
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened.value().model_config().ok());
  EXPECT_EQ(opened.value().tensors().size(), 2u);
  const TensorInfo* m = opened.value().find("m.weight");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->row_format(), RowFormat(Dtype::affine, 4, 32, Dtype::bf16));
  // Bytes of the test's tensors count up.
  for (std::uint64_t row = 0; row < 2; ++row) {
    const std::vector<float> got = numbers_of(opened.value(), row);
    ASSERT_EQ(got.size(), 64u);
    for (std::uint64_t k = 0; k < 64; ++k) {
      const auto byte = static_cast<int>(row * 32 + k / 2);
      const auto at = static_cast<std::uint16_t>(64 + (row * 2 + k / 32) * 2);
      const float scale = bf16_to_float(static_cast<std::uint16_t>(at | (at + 1) << 8));
      EXPECT_EQ(got[k], scale * static_cast<float>((byte >> k % 2 * 4 & 15) - 8))
          << row << " " << k;
    }
  }

  // One scale for a row, and zero points: two rows share a word.
  folder.config = compressed(R"("symmetric": false, "strategy": "channel")");
  folder.tensors = {{"m.weight_packed", "I32", {2, 8}, 4},
                    {"m.weight_scale", "F16", {2, 1}, 2},
                    {"m.weight_zero_point", "I32", {1, 1}, 4},
                    {"m.weight_shape", "I64", {2}, 8}};
  auto zeros = folder.open();
  ASSERT_TRUE(zeros.ok()) << zeros.status().message();
  EXPECT_EQ(zeros.value().find("m.weight")->row_format(),
            RowFormat(Dtype::affine, 4, 64, Dtype::f32));
  for (std::uint64_t row = 0; row < 2; ++row) {
    const std::vector<float> got = numbers_of(zeros.value(), row);
    const auto at = static_cast<std::uint16_t>(64 + row * 2);
    const float scale = half_to_float(static_cast<std::uint16_t>(at | (at + 1) << 8));
    const int zero = 68 >> row * 4 & 15;
    for (std::uint64_t k = 0; k < 64; ++k) {
      const auto byte = static_cast<int>(row * 32 + k / 2);
      EXPECT_EQ(got[k], scale * static_cast<float>((byte >> k % 2 * 4 & 15) - zero))
          << row << " " << k;
    }
  }
}

TEST(Quantisation, RefusesOtherCompressedTensors) {
  constexpr char kGood[] = R"("symmetric": true, "strategy": "group", "group_size": 32)";
  const std::vector<TypedTensor> good = {{"m.weight_packed", "I32", {2, 8}, 4},
                                         {"m.weight_scale", "BF16", {2, 2}, 2}};
  const auto add = [&](const TypedTensor& tensor) {
    std::vector<TypedTensor> all = good;
    all.push_back(tensor);
    return all;
  };
  struct Case {
    std::string config;
    std::vector<TypedTensor> tensors;
    std::string named;
  };
  const std::vector<Case> all = {
      {replaced(compressed(kGood), "pack-quantized", "int-quantized"), good, "int-quantized"},
      {replaced(compressed(kGood), "\"num_bits\": 4", "\"num_bits\": 3"), good, "num_bits"},
      {replaced(compressed(kGood), "\"int\"", "\"float\""), good, "num_bits"},
      {replaced(compressed(kGood), "\"group_size\": 32", "\"group_size\": 48"), good, "group_size"},
      {replaced(compressed(kGood), "\"group\"", "\"block\""), good, "strategy"},
      {compressed(std::string(kGood) + R"(, "actorder": "group")"), good, "actorder"},
      {compressed(kGood, R"(, "kv_cache_scheme": {})"), good, "kv_cache_scheme"},
      {replaced(compressed(kGood), "\"targets\"", "\"input_activations\": {}, \"targets\""), good,
       "input_activations"},
      {replaced(compressed(kGood), "config_groups", "groups"), good, "config_groups"},
      {compressed(kGood), {{"m.weight_packed", "I32", {2, 8}, 4}}, "no weight_scale"},
      {compressed(kGood),
       {{"m.weight_packed", "I32", {2, 8}, 4}, {"m.weight_scale", "BF16", {2, 3}, 2}},
       "no group"},
      {compressed(kGood),
       {{"m.weight_packed", "U32", {2, 8}, 4}, {"m.weight_scale", "BF16", {2, 2}, 2}},
       "I32"},
      {compressed(kGood), add({"m.weight", "BF16", {2, 64}, 2}), "plain weight"},
      {compressed(kGood), add({"m.weight_g_idx", "I32", {64}, 4}), "another order"},
      {compressed(kGood), add({"m.weight_zero_point", "I32", {1, 2}, 4}), "with zero points"},
      {replaced(compressed(kGood), "true", "false"), add({"m.weight_zero_point", "I32", {2, 2}, 4}),
       "do not explain"},
      {replaced(compressed(kGood), "true", "false"),
       {{"m.weight_packed", "I32", {2, 8}, 4},
        {"m.weight_scale", "F32", {2, 2}, 4},
        {"m.weight_zero_point", "I32", {1, 2}, 4}},
       "no packed kind"},
  };
  for (const Case& one : all) {
    SCOPED_TRACE(one.named);
    Folder folder;
    folder.config = one.config;
    folder.tensors = one.tensors;
    auto opened = folder.open();
    Status status;
    if (!opened.ok()) {
      status = opened.status();
    } else if (auto config = opened.value().model_config(); !config.ok()) {
      status = config.status();
    }
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.message().find(one.named), std::string::npos) << status.message();
  }
}

TEST(Quantisation, ReadsMxfp4AndEightBitFloatBlocks) {
  Folder folder;
  folder.config = with(R"("quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"})");
  folder.tensors = {{"m.weight", "U32", {2, 8}, 4}, {"m.scales", "U8", {2, 2}, 1}};
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().find("m.weight")->dtype, Dtype::mxfp4_rows);

  folder.config = with(R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
      "weight_block_size": [2, 16]})");
  folder.tensors = {{"m.weight", "F8_E4M3", {3, 20}, 1}, {"m.weight_scale_inv", "BF16", {2, 2}, 2}};
  auto blocks = folder.open();
  ASSERT_TRUE(blocks.ok()) << blocks.status().message();
  const TensorInfo& m = *blocks.value().find("m.weight");
  EXPECT_EQ(m.row_format(), RowFormat(Dtype::f8_blocks, 0, 16, Dtype::bf16));
  std::vector<std::byte> rows(m.bytes);
  ASSERT_TRUE(blocks.value().read(m, 0, rows).ok());
  ASSERT_EQ(rows.size(), 3u * 24);
  for (std::size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(static_cast<std::size_t>(rows[row * 24]), row * 20);
    EXPECT_EQ(static_cast<std::size_t>(rows[row * 24 + 20]), 60 + row / 2 * 4);
  }
}

// gpt-oss: [experts, outputs, groups, 16 bytes] and [experts, outputs, groups].
TEST(Quantisation, ReadsMxfp4Blocks) {
  Folder folder;
  folder.config = with(R"("quantization_config": {"quant_method": "mxfp4"})");
  folder.tensors = {{"m_blocks", "U8", {2, 2, 2, 16}, 1},
                    {"m_scales", "U8", {2, 2, 2}, 1},
                    {"m_bias", "BF16", {2, 2}, 2}};
  auto opened = folder.open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value().tensors().size(), 2u);
  const TensorInfo& m = *opened.value().find("m_blocks");
  EXPECT_EQ(m.dtype, Dtype::mxfp4_rows);
  EXPECT_EQ(m.shape, (std::vector<std::uint64_t>{2, 2, 64}));
  std::vector<std::byte> rows(m.bytes);
  ASSERT_TRUE(opened.value().read(m, 0, rows).ok());
  ASSERT_EQ(rows.size(), 4u * 34);
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(static_cast<std::size_t>(rows[row * 34]), row * 32);
    EXPECT_EQ(static_cast<std::size_t>(rows[row * 34 + 32]), 128 + row * 2);
  }
  const std::vector<std::function<void(Folder&)>> broken = {
      [](Folder& f) { f.tensors[0].type = "F8_E4M3"; },
      [](Folder& f) { f.tensors[0].shape = {2, 2, 4, 8}; },
      [](Folder& f) { f.tensors[0].shape = {8, 16}; },
      [](Folder& f) { f.tensors[1].shape = {2, 2, 3}; },
      [](Folder& f) { f.tensors[1].name = "n_scales"; }};
  for (std::size_t i = 0; i < broken.size(); ++i) {
    Folder wrong;
    wrong.config = folder.config;
    wrong.tensors = folder.tensors;
    broken[i](wrong);
    auto refused = wrong.open();
    ASSERT_FALSE(refused.ok()) << i;
    EXPECT_NE(refused.status().message().find("'m_blocks'"), std::string::npos)
        << refused.status().message();
  }
}

struct Broken {
  std::function<void(Folder&)> change;
  std::string named;
};

TEST(Quantisation, RefusesContradictionsByName) {
  const std::vector<Broken> all = {
      {[](Folder& f) { f.tensors[0].type = "I32"; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[0].shape = {2, 17}; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[0].shape = {3, 16}; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[0].shape = {32}; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[0].name = "n.weight"; }, "'m.scales'"},
      {[](Folder& f) { f.tensors[1].type = "I64", f.tensors[1].size = 8; }, "'m.scales'"},
      {[](Folder& f) { f.tensors[1].shape = {2, 4}; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[1].shape = {}; }, "'m.weight'"},
      {[](Folder& f) { f.tensors[1].name = "n.scales"; }, "'n.scales'"},
      {[](Folder& f) { f.tensors.erase(f.tensors.begin() + 1, f.tensors.begin() + 3); },
       "'m.weight'"},
      {[](Folder& f) { f.tensors[2].type = "F16"; }, "'m.biases'"},
      {[](Folder& f) { f.tensors[2].shape = {2, 3}; }, "'m.biases'"},
      {[](Folder& f) { f.tensors.erase(f.tensors.begin() + 2); }, "'m.scales'"},
      {[](Folder& f) {
         f.config = with(R"("quantization": {"group_size": 64, "bits": 4, "m": false})");
       },
       "'m.scales'"},
      {[](Folder& f) {
         f.config = with(R"("quantization": {"group_size": 64, "bits": 4, "m": {"bits": 7}})");
       },
       "quantization.m"},
      {[](Folder& f) {
         f.config = with(R"("quantization": {"group_size": 64, "bits": 4, "m": {"bits": "4"}})");
       },
       "quantization.m"},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    Folder folder;
    all[i].change(folder);
    auto opened = folder.open();
    ASSERT_FALSE(opened.ok()) << i;
    const std::string& message = opened.status().message();
    EXPECT_NE(message.find(all[i].named), std::string::npos) << i << " " << message;
    EXPECT_NE(message.find(folder.folder.path()), std::string::npos) << i << " " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(Quantisation, BlockScalesMustCoverTheirWeight) {
  for (const auto& [weight, scales, block] :
       {std::tuple("F8_E4M3", std::vector<std::uint64_t>{2, 1}, "[2, 16]"),
        std::tuple("F8_E4M3", std::vector<std::uint64_t>{2, 2}, "[0, 16]"),
        std::tuple("F8_E4M3", std::vector<std::uint64_t>{2, 2}, "16"),
        std::tuple("U8", std::vector<std::uint64_t>{2, 2}, "[2, 16]")}) {
    Folder folder;
    folder.config = with(R"("quantization_config": {"quant_method": "fp8", "weight_block_size": )" +
                         std::string(block) + "}");
    folder.tensors = {{"m.weight", weight, {3, 20}, 1}, {"m.weight_scale_inv", "F32", scales, 4}};
    auto opened = folder.open();
    ASSERT_FALSE(opened.ok()) << block;
    EXPECT_EQ(opened.status().code(), Code::corrupt);
  }
}

TEST(Quantisation, OtherMethodsAreNamed) {
  for (const char* said :
       {R"({"quant_method": "awq", "bits": 4})", R"({"bits": 4, "mode": "nvfp4"})",
        R"({"quant_method": "fp8", "fmt": "e5m2"})", R"({"bits": 7})", "{}",
        R"({"bits": 4, "group_size": 16})"}) {
    Folder folder;
    folder.config = with(R"("quantization_config": )" + std::string(said));
    auto opened = folder.open();
    ASSERT_TRUE(opened.ok()) << said << opened.status().message();
    EXPECT_EQ(opened.value().model_config().status().code(), Code::unsupported) << said;
  }
}

TEST(GgufShards, NamesFollowFromOne) {
  EXPECT_EQ(gguf_shards("d/m-00002-of-00003.gguf"),
            (std::vector<std::string>{"d/m-00001-of-00003.gguf", "d/m-00002-of-00003.gguf",
                                      "d/m-00003-of-00003.gguf"}));
  for (const char* name :
       {"m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "-00001-of-00001.gguf",
        "m-0001-of-0003.gguf", "m-000a1-of-00003.gguf", "m-00001-of-99999.gguf"}) {
    EXPECT_TRUE(gguf_shards(name).empty()) << name;
  }
}

// The tiny model with its tensors spread over two files.
class ShardedGguf : public ::testing::Test {
 protected:
  std::string shard(std::uint32_t number, std::uint32_t count, const std::string& bytes) {
    return folder.write(fmt::format("m-{:05}-of-{:05}.gguf", number, count), bytes);
  }
  static testing::GgufBuilder numbered(testing::GgufBuilder file, std::uint16_t number) {
    file.add("split.no", 2, testing::raw(number))
        .add("split.count", 2, testing::raw<std::uint16_t>(2));
    return file;
  }
  TempFolder folder;
};

TEST_F(ShardedGguf, AnyShardStandsForTheModel) {
  auto first = numbered(testing::tiny_gguf("llama"), 0);
  testing::GgufBuilder rest;
  rest.tensor("extra.weight", {4, 2});
  auto second = numbered(rest, 1);
  shard(1, 2, first.build());
  const std::string last = shard(2, 2, second.build());
  for (const std::string& path : {last, folder.path()}) {
    auto opened = Checkpoint::open(path);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(opened.value().files().size(), 2u);
    EXPECT_TRUE(opened.value().model_config().ok());
    const TensorInfo* extra = opened.value().find("extra.weight");
    ASSERT_NE(extra, nullptr);
    EXPECT_EQ(extra->file, 1u);
    std::vector<float> values(8);
    ASSERT_TRUE(opened.value().read(*extra, 0, std::as_writable_bytes(std::span(values))).ok());
    EXPECT_EQ(values, std::vector<float>(8, 1.0f));
  }
}

TEST_F(ShardedGguf, MissingStrangeAndMiscountedShardsAreRefused) {
  auto first = numbered(testing::tiny_gguf("llama"), 0);
  const std::string path = shard(1, 2, first.build());
  EXPECT_EQ(Checkpoint::open(path).status().code(), Code::not_found);
  testing::GgufBuilder rest;
  rest.tensor("extra.weight", {4, 2});
  shard(2, 2, rest.build());
  EXPECT_EQ(Checkpoint::open(path).status().code(), Code::corrupt);
  shard(2, 2, numbered(rest, 0).build());
  EXPECT_EQ(Checkpoint::open(path).status().code(), Code::corrupt);
  shard(2, 2, numbered(rest, 1).build());
  EXPECT_TRUE(Checkpoint::open(path).ok());
  first.add("split.tensors.count", 5, testing::raw<std::int32_t>(3));
  shard(1, 2, first.build());
  EXPECT_EQ(Checkpoint::open(path).status().code(), Code::corrupt);
  const std::string alone =
      folder.write("alone.gguf", numbered(testing::tiny_gguf("llama"), 0).build());
  EXPECT_EQ(Checkpoint::open(alone).status().code(), Code::corrupt);
}

}  // namespace
}  // namespace drafthouse
