#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/test_files.h"
#include "tensor/half.h"
#include "tests/test_data.h"

// nano-qwen3 as a GGUF file whose embedding and attention are F16 and whose feed-forward matrices
// are Q4_1. Written by the tests that want it, from the folder: as a file it would be 3 MB of the
// repository.

namespace drafthouse::test {

// Blocks of 32 values: a half scale, a half minimum, and 16 bytes with values j and j + 16 in the
// lower and the upper four bits.
inline std::string to_q4_1(const std::vector<float>& all) {
  std::string out;
  for (std::size_t at = 0; at < all.size(); at += 32) {
    const auto [least, most] =
        std::minmax_element(all.begin() + static_cast<std::ptrdiff_t>(at),
                            all.begin() + static_cast<std::ptrdiff_t>(at + 32));
    const float scale = (*most - *least) / 15.0f;
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    const auto code = [&, minimum = *least](std::size_t i) {
      const float steps = std::trunc((all[at + i] - minimum) * inverse + 0.5f);
      return static_cast<unsigned>(std::clamp(steps, 0.0f, 15.0f));
    };
    out += testing::raw(float_to_half(scale)) + testing::raw(float_to_half(*least));
    for (std::size_t i = 0; i < 16; ++i) out += static_cast<char>(code(i) | code(i + 16) << 4);
  }
  return out;
}

inline std::string to_f16(const std::vector<float>& all) {
  std::string out;
  for (const float value : all) out += testing::raw(float_to_half(value));
  return out;
}

inline std::string f16_q4_1_bytes() {
  const std::string folder = data_path("models/nano-qwen3") + "/target";
  const Checkpoint checkpoint = Checkpoint::open(folder).value();
  testing::GgufBuilder file;
  file.text("general.architecture", "qwen3")
      .u32("qwen3.block_count", 6)
      .u32("qwen3.context_length", 8192)
      .u32("qwen3.embedding_length", 192)
      .u32("qwen3.feed_forward_length", 512)
      .u32("qwen3.attention.head_count", 3)
      .u32("qwen3.attention.head_count_kv", 1)
      .u32("qwen3.attention.key_length", 64)
      .u32("qwen3.attention.value_length", 64)
      .f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f)
      .f32("qwen3.rope.freq_base", 1e6f)
      .u32("tokenizer.ggml.eos_token_id", 2040);
  const std::map<std::string, std::string> parts = {
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
  };
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::vector<std::uint64_t> dims = checkpoint.find(from)->shape;
    std::reverse(dims.begin(), dims.end());
    const std::vector<float> all = read_floats(checkpoint, from);
    if (dims.size() == 1) {
      const std::string bytes(reinterpret_cast<const char*>(all.data()),
                              all.size() * sizeof(float));
      file.tensor(to, dims, 0, bytes);
    } else if (to.find(".ffn_") != std::string::npos) {
      file.tensor(to, dims, 3, to_q4_1(all));
    } else {
      file.tensor(to, dims, 1, to_f16(all));
    }
  };
  copy("model.embed_tokens.weight", "token_embd.weight");
  copy("model.norm.weight", "output_norm.weight");
  for (int layer = 0; layer < 6; ++layer) {
    for (const auto& [from, to] : parts) {
      copy("model.layers." + std::to_string(layer) + "." + from + ".weight",
           "blk." + std::to_string(layer) + "." + to + ".weight");
    }
  }
  return file.build();
}

// The file's path; it is written once per process and gone with it.
inline std::string f16_q4_1_file() {
  static const testing::TempFolder folder;
  static const std::string path = folder.write("gguf/nano-qwen3.F16-Q4_1.gguf", f16_q4_1_bytes());
  return path;
}

// A GGUF file of nano-qwen3 by its kind.
inline std::string nano_gguf(const std::string& kind) {
  if (kind == "F16-Q4_1") return f16_q4_1_file();
  return data_path("models/nano-qwen3") + "/gguf/nano-qwen3." + kind + ".gguf";
}

}  // namespace drafthouse::test
