#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "formats/tokenizer_source.h"
#include "text/tokenizer.h"

namespace drafthouse::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// models/NAME of the folder that DRAFTHOUSE_TEST_DATA names.
inline std::optional<std::filesystem::path> model_folder(const std::string& name) {
  const char* root = std::getenv("DRAFTHOUSE_TEST_DATA");
  if (root == nullptr) return std::nullopt;
  std::filesystem::path folder = std::filesystem::path(root) / "models" / name;
  if (!std::filesystem::exists(folder / "golden.json")) return std::nullopt;
  return folder;
}

inline TokenizerSource hugging_face_source(const std::filesystem::path& folder) {
  TokenizerSource source;
  source.origin = (folder / "tokenizer.json").string();
  source.tokenizer_json = read_file(folder / "tokenizer.json");
  source.tokenizer_config_json = read_file(folder / "tokenizer_config.json");
  const auto config = nlohmann::json::parse(*source.tokenizer_config_json);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    if (!config.contains(key) || !config.at(key).is_string()) return std::nullopt;
    return config.at(key).get<std::string>();
  };
  source.chat_template = text("chat_template");
  source.template_origin = (folder / "tokenizer_config.json").string();
  source.bos_token = text("bos_token");
  source.eos_token = text("eos_token");
  return source;
}

// A byte-level vocabulary of all bytes, a few merges, two control tokens and one user token.
inline GgufVocabulary small_gguf() {
  GgufVocabulary gguf;
  gguf.model = "gpt2";
  gguf.pre = "qwen2";
  const auto add = [&](std::string token, std::int32_t type) {
    gguf.tokens.push_back(std::move(token));
    gguf.token_types.push_back(type);
  };
  const auto add_character = [&](unsigned code) {
    std::string utf8;
    if (code < 0x80) {
      utf8 = static_cast<char>(code);
    } else {
      utf8 = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
    }
    add(utf8, 1);
  };
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    add_character(printable ? byte : next++);
  }
  for (const char* token : {"he", "ll", "hell", "hello", "\xC4\xA0h", "\xC4\xA0hello", "12"}) {
    add(token, 1);
  }
  gguf.merges = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 hello", "\xC4\xA0 h", "1 2"};
  add("<|im_start|>", 3);
  add("<|im_end|>", 3);
  add("<think>\xC3\xA9", 4);
  add("[PAD0]", 5);
  gguf.bos_id = 263;
  gguf.eos_id = 264;
  return gguf;
}

// A tokenizer.json as llama.cpp's converter writes it into a GGUF file: tokens by id, bytes and
// special tokens by type, merges as pairs with a space between. Nothing of the file's normalizer
// and pre-tokenizer remains but `model` and `pre`.
inline GgufVocabulary converted(const nlohmann::json& tokenizer, std::string model,
                                std::string pre) {
  GgufVocabulary gguf;
  gguf.model = std::move(model);
  gguf.pre = std::move(pre);
  const auto put = [&](std::size_t id, std::string token, std::int32_t type) {
    if (gguf.tokens.size() <= id) {
      gguf.tokens.resize(id + 1);
      gguf.token_types.resize(id + 1, 5);
    }
    gguf.tokens[id] = std::move(token);
    gguf.token_types[id] = type;
  };
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    put(id, token, byte ? 6 : 1);
  }
  for (const auto& added : tokenizer["added_tokens"]) {
    put(added["id"], added["content"], added["special"] ? 3 : 4);
  }
  for (const auto& merge : tokenizer["model"]["merges"]) {
    gguf.merges.push_back(merge.is_string()
                              ? merge.get<std::string>()
                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return gguf;
}

// Null where it fails, which fails the test too.
inline std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerSource& source) {
  auto made = Tokenizer::create(source);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : nullptr;
}

inline TokenizerSource source_of(GgufVocabulary gguf) {
  TokenizerSource source;
  source.origin = "small.gguf";
  source.gguf = std::move(gguf);
  return source;
}

}  // namespace drafthouse::test
