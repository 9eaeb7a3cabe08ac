#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "formats/file.h"
#include "formats/json_document.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace drafthouse {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

// A shard must lie in the folder itself, whatever an untrusted index says.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos &&
         name.find("..") == std::string_view::npos && name != ".";
}

Result<std::vector<std::string>> list_safetensors(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::size_t seen = 0;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (++seen > limits::kFolderEntriesMax) {
      return Status(Code::unsupported, fmt::format("{}: too many files in one folder", folder));
    }
    if (entry->path().extension() == ".safetensors") names.push_back(entry->path().filename());
  }
  if (error) {
    return Status(Code::not_found,
                  fmt::format("{}: cannot list the folder: {}", folder, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<SafetensorsFolder> read_index(const std::string& folder, const std::string& path,
                                     const std::string& text) {
  auto document = JsonDocument::parse(text, path);
  if (!document.ok()) return document.status();
  const JsonView map = document.value().root()["weight_map"];
  if (!map.is_object() || map.size() == 0) {
    return Status(Code::corrupt, fmt::format("{}: weight_map is missing or empty", path));
  }
  SafetensorsFolder found;
  found.index = path;
  std::vector<std::pair<std::string, std::string>> placed;  // tensor, shard
  std::vector<std::string> shards;
  for (std::string& tensor : map.keys()) {
    auto shard = map[tensor].text();
    if (!shard || !is_plain_file_name(*shard)) {
      return Status(Code::corrupt, fmt::format("{}: the shard of tensor '{}' is not a plain file "
                                               "name",
                                               path, printable(tensor)));
    }
    shards.push_back(*shard);
    placed.emplace_back(std::move(tensor), *std::move(shard));
  }
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  if (shards.size() > limits::kShardsMax) {
    return Status(Code::unsupported, fmt::format("{}: names {} shards; at most {} are read", path,
                                                 shards.size(), limits::kShardsMax));
  }
  for (auto& [tensor, shard] : placed) {
    const auto at = std::lower_bound(shards.begin(), shards.end(), shard) - shards.begin();
    found.placed.emplace_back(std::move(tensor), static_cast<std::uint32_t>(at));
  }
  for (const std::string& shard : shards) {
    found.files.push_back(folder + "/" + shard);
    auto there = is_there(found.files.back());
    if (!there.ok()) return there.status();
    if (!there.value()) {
      return Status(Code::not_found, fmt::format("{}: the index names this shard, but it is not "
                                                 "there; download it",
                                                 printable(found.files.back())));
    }
  }
  return found;
}

}  // namespace

Result<SafetensorsFolder> find_safetensors(const std::string& folder) {
  const std::string index = fmt::format("{}/{}", folder, kIndexName);
  auto text = read_text_file(index, limits::kIndexBytesMax);
  if (!text.ok()) return text.status();
  if (text.value()) return read_index(folder, index, *text.value());

  auto names = list_safetensors(folder);
  if (!names.ok()) return names.status();
  const auto& all = names.value();
  SafetensorsFolder found;
  if (std::find(all.begin(), all.end(), "model.safetensors") != all.end()) {
    found.files.push_back(folder + "/model.safetensors");
  } else if (all.size() == 1) {
    found.files.push_back(folder + "/" + all.front());
  } else if (all.empty()) {
    return Status(Code::not_found, fmt::format("{}: no *.safetensors file in this folder", folder));
  } else {
    return Status(Code::not_found,
                  fmt::format("{}: {} safetensors files but no {} and no model.safetensors", folder,
                              all.size(), kIndexName));
  }
  return found;
}

Status check_placement(const SafetensorsFolder& folder, const std::vector<TensorInfo>& sorted) {
  for (const auto& [name, file] : folder.placed) {
    const auto at =
        std::lower_bound(sorted.begin(), sorted.end(), name,
                         [](const TensorInfo& t, const std::string& n) { return t.name < n; });
    if (at == sorted.end() || at->name != name || at->file != file) {
      return Status(Code::corrupt, fmt::format("{}: tensor '{}' is not in this file, where {} "
                                               "places it",
                                               folder.files[file], printable(name), folder.index));
    }
  }
  return Status();
}

}  // namespace drafthouse
