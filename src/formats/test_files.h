#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/byte_source.h"

// Writers of small checkpoints, for tests. They write what they are told, also nonsense.
namespace drafthouse::testing {

// A folder that is gone with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "drafthouse-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = std::filesystem::canonical(name).string();
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Makes the folders above as well. Returns the path.
  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

 private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string safetensors(std::string_view header, std::size_t data_bytes) {
  return raw<std::uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\1');
}

// F32 tensors with the given names and shapes, one behind the other.
struct TestTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

inline std::string safetensors_of(const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  std::uint64_t at = 0;
  for (const TestTensor& tensor : tensors) {
    std::uint64_t bytes = 4;
    for (const std::uint64_t dim : tensor.shape) bytes *= dim;
    header +=
        fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                    at == 0 ? "" : ",", tensor.name, fmt::join(tensor.shape, ","), at, at + bytes);
    at += bytes;
  }
  return safetensors(header + "}", at);
}

// Tensors of any dtype; the data bytes count up from 0.
struct TypedTensor {
  std::string name;
  std::string type;
  std::vector<std::uint64_t> shape;
  std::uint64_t size;  // bytes of a value
};

inline std::string typed_safetensors(const std::vector<TypedTensor>& tensors) {
  std::string header = "{";
  std::uint64_t at = 0;
  for (const TypedTensor& tensor : tensors) {
    std::uint64_t bytes = tensor.size;
    for (const std::uint64_t dim : tensor.shape) bytes *= dim;
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header == "{" ? "" : ",", tensor.name, tensor.type,
                          fmt::join(tensor.shape, ","), at, at + bytes);
    at += bytes;
  }
  std::string file = safetensors(header + "}", at);
  for (std::uint64_t i = 0; i < at; ++i) file[file.size() - at + i] = static_cast<char>(i);
  return file;
}

inline MemorySource source_of(const std::string& bytes) {
  return MemorySource(std::as_bytes(std::span(bytes)), bytes.size(), "test-file");
}

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // of the data; write the key yourself when it is not 32

  GgufBuilder& text(std::string_view name, std::string_view value) {
    return add(name, 8, string(value));
  }
  GgufBuilder& u32(std::string_view name, std::uint32_t value) { return add(name, 4, raw(value)); }
  GgufBuilder& f32(std::string_view name, float value) { return add(name, 6, raw(value)); }
  GgufBuilder& flag(std::string_view name, bool value) {
    return add(name, 7, raw<std::uint8_t>(value ? 1 : 0));
  }
  GgufBuilder& texts(std::string_view name, const std::vector<std::string>& values) {
    std::string all;
    for (const auto& value : values) all += string(value);
    return list(name, 8, values.size(), all);
  }
  GgufBuilder& u32s(std::string_view name, const std::vector<std::uint32_t>& values) {
    std::string all;
    for (const auto value : values) all += raw(value);
    return list(name, 4, values.size(), all);
  }
  GgufBuilder& flags(std::string_view name, const std::vector<std::uint8_t>& values) {
    return list(name, 7, values.size(), std::string(values.begin(), values.end()));
  }
  GgufBuilder& list(std::string_view name, std::uint32_t kind, std::uint64_t count,
                    std::string_view elements) {
    return add(name, 9, raw(kind) + raw(count) + std::string(elements));
  }
  GgufBuilder& add(std::string_view name, std::uint32_t kind, std::string_view value) {
    keys_ += string(name) + raw(kind) + std::string(value);
    ++key_count_;
    return *this;
  }
  // `dims` innermost first, as in the file. The data goes behind that of the tensors before.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                      std::uint32_t type, std::string_view data) {
    info(name, dims, type, data_.size());
    data_ += data;
    // The last tensor stays unpadded, so that a file cut by one byte has lost a byte of it.
    pending_ = (alignment - data_.size() % alignment) % alignment;
    return *this;
  }
  // F32 of zeros and ones.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims) {
    std::uint64_t values = 1;
    for (const auto dim : dims) values *= dim;
    std::string data;
    for (std::uint64_t i = 0; i < values; ++i) data += raw(1.0f);
    return tensor(name, dims, 0, data);
  }
  GgufBuilder& info(std::string_view name, const std::vector<std::uint64_t>& dims,
                    std::uint32_t type, std::uint64_t offset) {
    data_.append(pending_, '\0');
    offset += pending_;
    pending_ = 0;
    infos_ += string(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const auto dim : dims) infos_ += raw(dim);
    infos_ += raw(type) + raw(offset);
    ++tensor_count_;
    return *this;
  }

  std::string build() const {
    std::string file =
        "GGUF" + raw(version) + raw(tensor_count_) + raw(key_count_) + keys_ + infos_;
    file.append((alignment - file.size() % alignment) % alignment, '\0');
    return file + data_;
  }

  static std::string string(std::string_view text) {
    return raw<std::uint64_t>(text.size()) + std::string(text);
  }

 private:
  std::string keys_, infos_, data_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0, pending_ = 0;
};

// A whole model of one layer: hidden 8, 2 heads of 4, vocabulary 6.
inline GgufBuilder tiny_gguf(const std::string& family) {
  GgufBuilder file;
  file.text("general.architecture", family)
      .u32(family + ".block_count", 1)
      .u32(family + ".context_length", 64)
      .u32(family + ".embedding_length", 8)
      .u32(family + ".feed_forward_length", 12)
      .u32(family + ".attention.head_count", 2)
      .u32(family + ".attention.head_count_kv", 1)
      .f32(family + ".attention.layer_norm_rms_epsilon", 1e-6f)
      .f32(family + ".rope.freq_base", 10000.0f)
      .text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "smollm")
      .texts("tokenizer.ggml.tokens", {"a", "b", "<eos>", "<|im_end|>", "ab"})
      .u32s("tokenizer.ggml.token_type", {1, 1, 3, 3, 1})
      .texts("tokenizer.ggml.merges", {"a b"})
      .u32("tokenizer.ggml.eos_token_id", 2)
      .text("tokenizer.chat_template", "{{ messages }}");
  file.tensor("token_embd.weight", {8, 6}).tensor("output_norm.weight", {8});
  file.tensor("blk.0.attn_q.weight", {8, 8}).tensor("blk.0.attn_norm.weight", {8});
  return file;
}

inline GgufBuilder tiny_draft_gguf() {
  GgufBuilder file;
  file.text("general.architecture", "dflash")
      .u32("dflash.block_count", 2)
      .u32("dflash.context_length", 64)
      .u32("dflash.embedding_length", 8)
      .u32("dflash.feed_forward_length", 12)
      .u32("dflash.attention.head_count", 2)
      .u32("dflash.attention.head_count_kv", 1)
      .u32("dflash.attention.key_length", 4)
      .f32("dflash.attention.layer_norm_rms_epsilon", 1e-6f)
      .f32("dflash.rope.freq_base", 10000.0f)
      .u32("dflash.vocab_size", 6)
      .u32("dflash.block_size", 8)
      .u32("dflash.mask_token_id", 5)
      .u32s("dflash.target_layers", {2, 4});
  file.tensor("fc.weight", {16, 8}).tensor("layers.0.self_attn.q_proj.weight", {8, 8});
  return file;
}

inline constexpr std::string_view kTinyConfig = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 8,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
  "intermediate_size": 12, "vocab_size": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
  "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 2,
  "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})";

inline constexpr std::string_view kTinyDraftConfig = R"({
  "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 8,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
  "intermediate_size": 12, "vocab_size": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
  "rope_theta": 1000000.0, "rope_scaling": null, "num_target_layers": 6, "block_size": 8,
  "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32,
  "use_sliding_window": true,
  "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 3]}})";

// The text with the first `from` replaced; fails loudly when it is not there.
inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out(text);
  const auto at = out.find(from);
  if (at == std::string::npos) throw std::runtime_error("not there: " + std::string(from));
  return out.replace(at, from.size(), to);
}

}  // namespace drafthouse::testing
