// Families from GGUF files: the tiny checkpoints, written as GGUF with the names and layouts of
// that format, compute what the Hugging Face folders compute, bit for bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "drafthouse/engine.h"
#include "formats/test_files.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

using testing::GgufBuilder;

constexpr std::uint32_t kBf16 = 30;
constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kVocabulary = 256;

// A folder's tensors by name, and how they go into a GGUF file.
class Converter {
 public:
  Converter(const std::string& folder, GgufBuilder& file)
      : checkpoint_(Checkpoint::open(folder).value()), file_(file) {}

  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  std::vector<std::uint64_t> shape(const std::string& name) const {
    return checkpoint_.find(name)->shape;
  }
  std::string bytes(const std::string& name) const {
    const TensorInfo* tensor = checkpoint_.find(name);
    std::string data(tensor->bytes, '\0');
    EXPECT_TRUE(checkpoint_.read(*tensor, 0, std::as_writable_bytes(std::span(data))).ok());
    return data;
  }
  // Matrices as they are, vectors as f32, as converters do.
  void copy(const std::string& from, const std::string& to) {
    if (!has(from)) return;
    const auto dims = shape(from);
    if (dims.size() > 1) return put(to, dims, bytes(from));
    put_floats(to, dims, bytes(from));
  }
  void put(const std::string& to, std::vector<std::uint64_t> dims, const std::string& data) {
    std::reverse(dims.begin(), dims.end());
    file_.tensor(to, dims, kBf16, data);
  }
  void put_floats(const std::string& to, std::vector<std::uint64_t> dims, const std::string& bf16) {
    std::string data;
    for (std::size_t i = 0; i < bf16.size(); i += 2)
      data += std::string(2, '\0') + bf16.substr(i, 2);
    std::reverse(dims.begin(), dims.end());
    file_.tensor(to, dims, kF32, data);
  }
  void attention(const std::string& from, const std::string& to) {
    const std::map<std::string, std::string> names = {
        {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"}};
    for (const auto& [theirs, ours] : names) {
      copy(from + theirs + ".weight", to + ours + ".weight");
      copy(from + theirs + ".bias", to + ours + ".bias");
    }
  }

 private:
  Checkpoint checkpoint_;
  GgufBuilder& file_;
};

GgufBuilder metadata(const std::string& architecture, std::uint32_t layers,
                     std::uint32_t head_dim) {
  GgufBuilder file;
  const std::string p = architecture + ".";
  file.text("general.architecture", architecture)
      .u32(p + "block_count", layers)
      .u32(p + "context_length", 1024)
      .u32(p + "embedding_length", 64)
      .u32(p + "feed_forward_length", 96)
      .u32(p + "attention.head_count", 4)
      .u32(p + "attention.head_count_kv", 2)
      .u32(p + "attention.key_length", head_dim)
      .u32(p + "attention.value_length", head_dim);
  return file;
}

std::vector<double> scored(const std::string& path) {
  Result<std::unique_ptr<Engine>> engine = Engine::load({.target = path});
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  if (!engine.ok()) return {};
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < 90; ++i) ids.push_back((i * 71 + i * i) % kVocabulary);
  const Result<ScoreResult> score = engine.value()->score({.ids = ids, .width = 16});
  EXPECT_TRUE(score.ok()) << (score.ok() ? "" : score.status().message());
  return score.ok() ? score.value().logprob : std::vector<double>{};
}

void expect_equal(const GgufBuilder& file, const std::string& folder) {
  testing::TempFolder temp;
  const std::string path = temp.write("model.gguf", file.build());
  const std::vector<double> want = scored(folder);
  ASSERT_FALSE(want.empty());
  EXPECT_EQ(scored(path), want);
}

void copy_ends(Converter& to) {
  to.copy("model.embed_tokens.weight", "token_embd.weight");
  to.copy("model.norm.weight", "output_norm.weight");
  to.copy("lm_head.weight", "output.weight");
}

TEST(GgufFamilies, Qwen2) {
  const std::string folder = test::data_path("tiny/qwen2");
  const auto heads = Checkpoint::open(folder).value().model_config().value();
  GgufBuilder file = metadata("qwen2", 3, heads.head_dim);
  file.f32("qwen2.attention.layer_norm_rms_epsilon", 1e-6f).f32("qwen2.rope.freq_base", 10000.0f);
  Converter to(folder, file);
  copy_ends(to);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string from = "model.layers." + std::to_string(layer) + ".";
    const std::string at = "blk." + std::to_string(layer) + ".";
    to.attention(from, at);
    to.copy(from + "post_attention_layernorm.weight", at + "ffn_norm.weight");
    to.copy(from + "mlp.gate_proj.weight", at + "ffn_gate.weight");
    to.copy(from + "mlp.up_proj.weight", at + "ffn_up.weight");
    to.copy(from + "mlp.down_proj.weight", at + "ffn_down.weight");
  }
  expect_equal(file, folder);
}

// In this format every layer of Qwen3-MoE has experts, so the checkpoint is cut before its dense
// one.
TEST(GgufFamilies, Qwen3Moe) {
  const std::string folder = test::data_path("tiny/qwen3_moe");
  GgufBuilder file = metadata("qwen3moe", 1, 32);
  file.f32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f)
      .f32("qwen3moe.rope.freq_base", 10000.0f)
      .u32("qwen3moe.expert_count", 8)
      .u32("qwen3moe.expert_used_count", 2)
      .u32("qwen3moe.expert_feed_forward_length", 32);
  Converter to(folder, file);
  copy_ends(to);
  to.attention("model.layers.0.", "blk.0.");
  to.copy("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight");
  to.copy("model.layers.0.mlp.gate.weight", "blk.0.ffn_gate_inp.weight");
  for (const std::string part : {"gate", "up", "down"}) {
    std::string stacked;
    for (int e = 0; e < 8; ++e) {
      stacked +=
          to.bytes("model.layers.0.mlp.experts." + std::to_string(e) + "." + part + "_proj.weight");
    }
    const bool down = part == "down";
    to.put("blk.0.ffn_" + part + "_exps.weight",
           {8, down ? std::uint64_t{64} : 32, down ? std::uint64_t{32} : 64}, stacked);
  }
  // The same cut, as a folder.
  testing::TempFolder cut;
  nlohmann::json config = test::read_json(folder + "/config.json");
  config["num_hidden_layers"] = 1;
  cut.write("config.json", config.dump());
  std::vector<std::pair<std::string, std::string>> kept;
  nlohmann::json header;
  std::string data;
  const Checkpoint whole = Checkpoint::open(folder).value();
  for (const TensorInfo& tensor : whole.tensors()) {
    if (tensor.name.find("layers.1.") != std::string::npos) continue;
    if (tensor.name.find("layers.2.") != std::string::npos) continue;
    const std::string bytes = to.bytes(tensor.name);
    header[tensor.name] = {{"dtype", "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  const std::string text = header.dump();
  cut.write("model.safetensors", testing::raw<std::uint64_t>(text.size()) + text + data);
  expect_equal(file, cut.path());
}

TEST(GgufFamilies, GptOss) {
  const std::string folder = test::data_path("tiny/gpt_oss");
  if (folder.empty()) GTEST_SKIP() << "tiny/gpt_oss is in the larger set of test data only";
  GgufBuilder file = metadata("gpt-oss", 4, 32);
  file.f32("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f)
      .f32("gpt-oss.rope.freq_base", 150000.0f)
      .text("gpt-oss.rope.scaling.type", "yarn")
      .f32("gpt-oss.rope.scaling.factor", 32.0f)
      .u32("gpt-oss.rope.scaling.original_context_length", 4096)
      .u32("gpt-oss.attention.sliding_window", 16)
      .u32("gpt-oss.expert_count", 8)
      .u32("gpt-oss.expert_used_count", 2)
      .u32("gpt-oss.expert_feed_forward_length", 64);
  Converter to(folder, file);
  copy_ends(to);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string from = "model.layers." + std::to_string(layer) + ".";
    const std::string at = "blk." + std::to_string(layer) + ".";
    to.attention(from, at);
    to.copy(from + "self_attn.sinks", at + "attn_sinks.weight");
    to.copy(from + "post_attention_layernorm.weight", at + "post_attention_norm.weight");
    to.copy(from + "mlp.router.weight", at + "ffn_gate_inp.weight");
    to.copy(from + "mlp.router.bias", at + "ffn_gate_inp.bias");
    // [expert][input][output], outputs of gate and up in turns → [expert][output][input].
    const auto turned = [&](const std::string& name, std::size_t inputs, std::size_t columns,
                            std::size_t first, std::size_t step) {
      const std::string data = to.bytes(from + "mlp.experts." + name);
      std::string out;
      for (std::size_t e = 0; e < 8; ++e) {
        for (std::size_t o = first; o < columns; o += step) {
          for (std::size_t k = 0; k < inputs; ++k) {
            out += data.substr(2 * ((e * inputs + k) * columns + o), 2);
          }
        }
      }
      return out;
    };
    to.put(at + "ffn_gate_exps.weight", {8, 64, 64}, turned("gate_up_proj", 64, 128, 0, 2));
    to.put(at + "ffn_up_exps.weight", {8, 64, 64}, turned("gate_up_proj", 64, 128, 1, 2));
    to.put(at + "ffn_down_exps.weight", {8, 64, 64}, turned("down_proj", 64, 64, 0, 1));
    to.put_floats(at + "ffn_gate_exps.bias", {8, 64}, turned("gate_up_proj_bias", 1, 128, 0, 2));
    to.put_floats(at + "ffn_up_exps.bias", {8, 64}, turned("gate_up_proj_bias", 1, 128, 1, 2));
    to.put_floats(at + "ffn_down_exps.bias", {8, 64}, turned("down_proj_bias", 1, 64, 0, 1));
  }
  expect_equal(file, folder);
}

}  // namespace
}  // namespace drafthouse
