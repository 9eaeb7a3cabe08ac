#include "formats/hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "formats/file.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

namespace fs = std::filesystem;

struct HubId {
  std::string name;      // "org/name"
  std::string revision;  // "main" unless given
};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

// huggingface_hub's own order.
std::optional<std::string> cache_folder() {
  if (auto cache = variable("HF_HUB_CACHE")) return cache;
  if (auto cache = variable("HUGGINGFACE_HUB_CACHE")) return cache;
  if (auto home = variable("HF_HOME")) return *home + "/hub";
  if (auto cache = variable("XDG_CACHE_HOME")) return *cache + "/huggingface/hub";
  if (auto home = variable("HOME")) return *home + "/.cache/huggingface/hub";
  return std::nullopt;
}

bool is_name_part(std::string_view part) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !part.empty() && part.size() <= 96 && part != "." &&
         part.find("..") == std::string::npos &&
         part.find_first_not_of(kAllowed) == std::string_view::npos;
}

// Parts between slashes; a revision may have several ("refs/pr/1").
bool are_name_parts(std::string_view text, std::size_t parts_max) {
  std::size_t parts = 0;
  for (;;) {
    const auto slash = text.find('/');
    if (!is_name_part(text.substr(0, slash)) || ++parts > parts_max) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

std::optional<HubId> parse_id(const std::string& text) {
  HubId id{text, "main"};
  if (const auto at = text.find('@'); at != std::string::npos) {
    id = {text.substr(0, at), text.substr(at + 1)};
  }
  if (!are_name_parts(id.name, 2) || !are_name_parts(id.revision, 4)) return std::nullopt;
  return id;
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

Result<bool> is_folder(const std::string& path) {
  auto there = is_there(path);
  if (!there.ok() || !there.value()) return there;
  std::error_code error;
  return fs::is_directory(path, error);
}

// The revisions that a cached model has, for a message.
std::string snapshots_of(const std::string& folder) {
  std::string list;
  std::error_code error;
  fs::directory_iterator entry(folder + "/snapshots", error);
  for (std::size_t shown = 0; !error && entry != fs::directory_iterator() && shown < 5; ++shown) {
    list += (list.empty() ? "" : ", ") + printable(entry->path().filename().string());
    entry.increment(error);
  }
  return list.empty() ? "none" : list;
}

Result<std::string> find_snapshot(const std::string& cache, const HubId& id) {
  std::string folder = id.name;
  if (const auto slash = folder.find('/'); slash != std::string::npos)
    folder.replace(slash, 1, "--");
  folder = cache + "/models--" + folder;
  auto cached = is_folder(folder);
  if (!cached.ok()) return cached.status();
  if (!cached.value()) {
    return Status(Code::not_found,
                  fmt::format("{}: neither a file or folder here nor in the Hugging Face cache "
                              "(looked for {}); download it there or give a path",
                              id.name, folder));
  }
  std::string revision = id.revision;
  auto ref = read_text_file(folder + "/refs/" + revision, 4096);
  if (!ref.ok()) return ref.status();
  if (ref.value()) revision = trimmed(*ref.value());
  const std::string snapshot = folder + "/snapshots/" + revision;
  auto found = is_name_part(revision) ? is_folder(snapshot) : Result<bool>(false);
  if (!found.ok()) return found.status();
  if (!found.value()) {
    return Status(Code::not_found,
                  fmt::format("{}: revision {} is not in {}/snapshots (there: {}); give one as "
                              "name@revision",
                              id.name, printable(id.revision), folder, snapshots_of(folder)));
  }
  return snapshot;
}

// A folder's links are followed; a file keeps its own name, since in the hub's cache it is a link
// to a blob that is named by its hash.
std::string resolved(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    auto folder = fs::canonical(path, error);
    return error ? path.string() : folder.string();
  }
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  auto folder = fs::canonical(parent, error);
  return error ? path.string() : (folder / path.filename()).string();
}

}  // namespace

Result<std::string> resolve_model(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) {
    return Status(Code::invalid_argument, "the name of a model is empty or holds a zero byte");
  }
  auto there = is_there(name);
  if (!there.ok()) return there.status();
  if (there.value()) return resolved(name);
  const auto id = parse_id(name);
  const bool is_path =
      !id || name.front() == '.' || name.ends_with(".gguf") || name.ends_with(".safetensors");
  if (is_path) {
    return Status(Code::not_found, fmt::format("{}: no such file or folder", printable(name)));
  }
  const auto cache = cache_folder();
  if (!cache) {
    return Status(Code::not_found,
                  fmt::format("{}: no such file or folder, and no Hugging Face cache "
                              "is known (HF_HUB_CACHE, HF_HOME and HOME are unset)",
                              name));
  }
  return find_snapshot(*cache, *id);
}

std::vector<std::string> cached_models() {
  std::vector<std::string> ids;
  const auto cache = cache_folder();
  if (!cache) return ids;
  constexpr std::string_view kPrefix = "models--";
  std::error_code error;
  fs::directory_iterator entry(*cache, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, kPrefix.size());
    if (const auto dashes = name.find("--"); dashes != std::string::npos) {
      name.erase(dashes, 1);
      name[dashes] = '/';
    }
    if (are_name_parts(name, 2)) ids.push_back(std::move(name));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace drafthouse
