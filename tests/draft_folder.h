#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/test_files.h"
#include "tests/test_data.h"

namespace drafthouse::test {

// The drafts of tiny-drafts, one for each layout, and what googletest calls them.
inline constexpr const char* kDraftVariants[] = {"v1-full",        "v1-swa",      "v1-causal-flag",
                                                 "v1-gemma-style", "speculators", "dflash2"};
inline std::string variant_name(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A checkpoint in a Hugging Face folder, read whole, to be changed and written elsewhere.
struct CheckpointFolder {
  struct Tensor {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::string bytes;
  };
  nlohmann::json config;
  std::map<std::string, Tensor> tensors;

  static CheckpointFolder read(const std::string& path) {
    CheckpointFolder folder;
    folder.config = read_json(path + "/config.json");
    const std::string file = testing::read_text(path + "/model.safetensors");
    std::uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof size);
    const auto header = nlohmann::json::parse(file.substr(8, size));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const std::uint64_t begin = entry["data_offsets"][0];
      const std::uint64_t end = entry["data_offsets"][1];
      folder.tensors[name] = {entry["dtype"], entry["shape"],
                              file.substr(8 + size + begin, end - begin)};
    }
    return folder;
  }

  void write(const std::string& path) const {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/config.json") << config;
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    const std::string text = header.dump();
    std::ofstream file(path + "/model.safetensors", std::ios::binary);
    file << testing::raw<std::uint64_t>(text.size()) << text << data;
  }
};

// A variant of tiny-drafts for the target tiny/gemma4-e, which has six layers; some were made for
// deeper ones.
inline CheckpointFolder draft_of_six_layers(const std::string& variant) {
  CheckpointFolder draft = CheckpointFolder::read(data_path("tiny-drafts/" + variant + "/draft"));
  nlohmann::json& inner = draft.config["dflash_config"];
  if (inner.is_object()) {
    draft.config["num_target_layers"] = 6;
    for (std::size_t i = 0; i < inner["target_layer_ids"].size(); ++i) {
      inner["target_layer_ids"][i] = i + 1;
    }
  }
  return draft;
}

}  // namespace drafthouse::test
