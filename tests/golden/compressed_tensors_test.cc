// A checkpoint in compressed-tensors' packed whole numbers computes what a folder of the same
// numbers in fp32 computes, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "drafthouse/engine.h"
#include "formats/test_files.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

constexpr std::size_t kGroup = 32;

struct Scheme {
  std::uint32_t bits;
  bool symmetric;
};

class Writer {
 public:
  void add(const std::string& name, const char* type, const std::vector<std::uint64_t>& shape,
           const std::string& bytes) {
    header_[name] = {{"dtype", type},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void write(const testing::TempFolder& folder, const nlohmann::json& config) const {
    const std::string text = header_.dump();
    folder.write("config.json", config.dump());
    folder.write("model.safetensors", testing::raw<std::uint64_t>(text.size()) + text + data_);
  }

 private:
  nlohmann::json header_;
  std::string data_;
};

// Packs a matrix as `module`, and adds the numbers that it then holds to `plain`.
void add_packed(const Scheme& scheme, const std::string& module,
                const std::vector<std::uint64_t>& shape, const std::vector<float>& values,
                Writer& packed, Writer& plain) {
  const std::uint64_t per_word = 32 / scheme.bits;
  const int top = (1 << scheme.bits) - 1;
  const std::uint64_t groups = shape[1] / kGroup;
  std::string words, scales, numbers;
  std::vector<std::uint32_t> zeros((shape[0] + per_word - 1) / per_word * groups);
  for (std::uint64_t g = 0; g < shape[0] * groups; ++g) {
    const float* in = values.data() + g * kGroup;
    const auto [low, high] = std::minmax_element(in, in + kGroup);
    float scale = scheme.symmetric
                      ? std::max(std::fabs(*low), std::fabs(*high)) / static_cast<float>(top / 2)
                      : (*high - *low) / static_cast<float>(top);
    const std::uint16_t scale_bits = float_to_bf16(scale);
    scale = bf16_to_float(scale_bits);
    scales += testing::raw(scale_bits);
    const int zero = scheme.symmetric
                         ? (top + 1) / 2
                         : std::clamp(static_cast<int>(std::nearbyint(-*low / scale)), 0, top);
    const std::uint64_t row = g / groups;
    zeros[row / per_word * groups + g % groups] |= static_cast<std::uint32_t>(zero)
                                                   << row % per_word * scheme.bits;
    for (std::uint64_t i = 0; i < kGroup; i += per_word) {
      std::uint32_t word = 0;
      for (std::uint64_t j = 0; j < per_word; ++j) {
        const int code =
            std::clamp(static_cast<int>(std::nearbyint(in[i + j] / scale)) + zero, 0, top);
        word |= static_cast<std::uint32_t>(code) << j * scheme.bits;
        numbers += testing::raw(static_cast<float>(code - zero) * scale);
      }
      words += testing::raw(word);
    }
  }
  packed.add(module + ".weight_packed", "I32", {shape[0], shape[1] / per_word}, words);
  packed.add(module + ".weight_scale", "BF16", {shape[0], groups}, scales);
  packed.add(module + ".weight_shape", "I64", {2},
             testing::raw<std::uint64_t>(shape[0]) + testing::raw<std::uint64_t>(shape[1]));
  if (!scheme.symmetric) {
    std::string bytes;
    for (const std::uint32_t word : zeros) bytes += testing::raw(word);
    packed.add(module + ".weight_zero_point", "I32", {zeros.size() / groups, groups}, bytes);
  }
  plain.add(module + ".weight", "F32", shape, numbers);
}

std::vector<double> scored(const std::string& path) {
  Result<std::unique_ptr<Engine>> engine = Engine::load({.target = path, .compute_fp32 = true});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  if (!engine.ok()) return {};
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 90; ++i) ids.push_back((i * 71 + i * i) % 256);
  const Result<ScoreResult> score = engine.value()->score({.ids = ids, .width = 16});
  EXPECT_TRUE(score.ok());
  return score.ok() ? score.value().logprob : std::vector<double>{};
}

TEST(CompressedTensors, ComputeTheirNumbers) {
  const std::string folder = test::data_path("tiny/qwen3");
  const Checkpoint source = Checkpoint::open(folder).value();
  for (const Scheme scheme :
       {Scheme{4, true}, {4, false}, {8, true}, {8, false}, {2, true}, {2, false}}) {
    SCOPED_TRACE(testing::raw(static_cast<char>('0' + scheme.bits)) +
                 (scheme.symmetric ? " bit" : " bit, zero points"));
    Writer packed, plain;
    for (const TensorInfo& tensor : source.tensors()) {
      const std::vector<float> values = test::read_floats(source, tensor.name);
      if (tensor.name.find("_proj.") != std::string::npos) {
        const std::string module = tensor.name.substr(0, tensor.name.size() - 7);
        add_packed(scheme, module, tensor.shape, values, packed, plain);
        continue;
      }
      std::string bytes;
      for (const float value : values) bytes += testing::raw(value);
      packed.add(tensor.name, "F32", tensor.shape, bytes);
      plain.add(tensor.name, "F32", tensor.shape, bytes);
    }
    nlohmann::json config = test::read_json(folder + "/config.json");
    testing::TempFolder as_numbers, as_packed;
    plain.write(as_numbers, config);
    nlohmann::json group;
    group["targets"] = {"Linear"};
    group["weights"] = {{"num_bits", scheme.bits},
                        {"type", "int"},
                        {"symmetric", scheme.symmetric},
                        {"strategy", "group"},
                        {"group_size", kGroup}};
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "pack-quantized"},
                                     {"ignore", {"lm_head"}},
                                     {"config_groups", {{"group_0", group}}}};
    packed.write(as_packed, config);
    const std::vector<double> want = scored(as_numbers.path());
    ASSERT_FALSE(want.empty());
    EXPECT_EQ(scored(as_packed.path()), want);
  }
}

}  // namespace
}  // namespace drafthouse
