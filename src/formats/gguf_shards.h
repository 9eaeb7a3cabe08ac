#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drafthouse {

// Metadata of a model in several .gguf files: the number of this one from 0, how many there are,
// how many tensors they have together.
inline constexpr std::string_view kGgufShardNumber = "split.no";
inline constexpr std::string_view kGgufShardCount = "split.count";
inline constexpr std::string_view kGgufShardTensors = "split.tensors.count";

// The paths of all shards, in order, when `path` is named as one (NAME-00002-of-00005.gguf); empty
// for any other name. Looks at no file.
std::vector<std::string> gguf_shards(const std::string& path);

}  // namespace drafthouse
