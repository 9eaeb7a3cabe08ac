#pragma once

#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/byte_source.h"
#include "formats/checkpoint.h"

namespace drafthouse {

// The tensors of one .safetensors file in file order, `file` left 0. The header must describe the
// file completely, as the format demands: every byte of the data belongs to exactly one tensor.
// corrupt: the file breaks its format or was cut short. unsupported: a dtype that is not read.
Result<std::vector<TensorInfo>> parse_safetensors(const ByteSource& source);

// The weight files of a Hugging Face folder: the shards that model.safetensors.index.json names,
// else model.safetensors, else the only *.safetensors. Paths in `files`; each tensor's `file`
// indexes it. Every shard must exist, and hold the tensors that the index places in it.
struct SafetensorsFolder {
  std::vector<std::string> files;
  std::string index;  // path of the index, empty without one
  std::vector<std::pair<std::string, std::uint32_t>> placed;  // the index: tensor name, file
};
Result<SafetensorsFolder> find_safetensors(const std::string& folder);

// Checks one file's tensors against the index. Needs the list sorted by name.
Status check_placement(const SafetensorsFolder& folder, const std::vector<TensorInfo>& sorted);

}  // namespace drafthouse
