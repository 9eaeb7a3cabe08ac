#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drafthouse {

// The vocabulary of a GGUF file (tokenizer.ggml.*), unchecked strings in file order.
struct GgufVocabulary {
  std::string model;  // "gpt2" is byte-level BPE
  std::string pre;    // "smollm", "qwen2", "llama-bpe", …
  std::vector<std::string> tokens;
  std::vector<std::int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
  std::vector<std::string> merges;
  std::optional<std::uint32_t> bos_id, eos_id, unk_id, pad_id;
  std::optional<bool> add_bos, add_space_prefix;
};

// What a checkpoint says about its text side. Exactly one of tokenizer_json and gguf is there when
// the checkpoint ships a tokenizer.
struct TokenizerSource {
  std::string origin;                                // the file, for messages
  std::optional<std::string> tokenizer_json;         // file content
  std::optional<std::string> tokenizer_config_json;  // file content
  std::optional<GgufVocabulary> gguf;
  // chat_template.jinja, else tokenizer_config.json, else chat_template.json, else GGUF metadata.
  std::optional<std::string> chat_template;
  std::string template_origin;  // the file (and key) that it stands in, for messages
  std::optional<std::string> bos_token, eos_token;  // as templates want them

  bool has_tokenizer() const { return tokenizer_json.has_value() || gguf.has_value(); }
};

}  // namespace drafthouse
