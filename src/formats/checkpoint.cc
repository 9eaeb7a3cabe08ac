#include "formats/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "formats/file.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_shards.h"
#include "formats/hf_config.h"
#include "formats/hub.h"
#include "formats/limits.h"
#include "formats/printable.h"
#include "formats/quantisation.h"
#include "formats/row_parts.h"
#include "formats/safetensors.h"
#include "formats/tensor_layouts.h"
#include "formats/tokenizer_files.h"

namespace drafthouse {

namespace {

namespace fs = std::filesystem;

struct Contents {
  std::string path;
  std::string_view format;
  std::vector<File> weights;
  std::vector<std::string> files;
  std::vector<TensorInfo> tensors;
  std::uint64_t bytes = 0;
  // At most one of them; neither when nothing says what the tensors are.
  std::optional<Result<ModelConfig>> model;
  std::optional<Result<DraftConfig>> draft;
  std::string unconfigured;  // why there is neither
  TokenizerSource tokenizer;
};

// Sorts by name and refuses a name that occurs twice.
Status sort_tensors(const std::vector<std::string>& files, std::vector<TensorInfo>& tensors) {
  if (tensors.size() > limits::kTensorsMax) {
    return Status(Code::unsupported,
                  fmt::format("{}: {} tensors; at most {} are read", files.front(), tensors.size(),
                              limits::kTensorsMax));
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair<const std::string&, std::uint32_t>(a.name, a.file) <
           std::pair<const std::string&, std::uint32_t>(b.name, b.file);
  });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice == tensors.end()) return Status();
  const TensorInfo& second = *std::next(twice);
  return Status(Code::corrupt, fmt::format("{}: tensor '{}' is also in {}", files[second.file],
                                           printable(second.file_name), files[twice->file]));
}

Result<JsonDocument> read_json(const std::string& path) {
  auto text = read_text_file(path, limits::kConfigBytesMax);
  if (!text.ok()) return text.status();
  if (!text.value()) return JsonDocument();
  auto document = JsonDocument::parse(*text.value(), path);
  if (document.ok() && !document.value().root().is_object()) {
    return Status(Code::corrupt, path + ": is not a JSON object");
  }
  return document;
}

Status draft_as_model(const std::string& path) {
  return Status(
      Code::invalid_argument,
      fmt::format("{}: is a DFlash draft, not a model that can answer; give it as the draft "
                  "of its target",
                  path));
}

Status model_as_draft(const std::string& path) {
  return Status(
      Code::mismatch,
      fmt::format("{}: is no DFlash draft; a draft's config.json has dflash_config, its GGUF "
                  "file the architecture \"dflash\"",
                  path));
}

std::vector<std::string_view> names_of(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  return names;
}

// The only .gguf of a folder without safetensors, or the first of its shards; nothing when there is
// none.
Result<std::optional<std::string>> find_gguf(const std::string& folder) {
  std::vector<std::string> found;
  bool safetensors = false;
  std::error_code error;
  std::size_t seen = 0;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (++seen > limits::kFolderEntriesMax) break;
    if (entry->path().extension() == ".gguf") found.push_back(entry->path().string());
    if (entry->path().filename().string().find(".safetensors") != std::string::npos) {
      safetensors = true;
    }
  }
  if (error) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: cannot list the folder: {}", folder, error.message()));
  }
  if (safetensors || found.empty()) return std::optional<std::string>();
  std::sort(found.begin(), found.end());
  const bool one_model = std::all_of(found.begin(), found.end(), [&](const std::string& path) {
    const std::vector<std::string> shards = gguf_shards(path);
    return !shards.empty() && shards.front() == gguf_shards(found.front()).front();
  });
  if (found.size() == 1 || one_model) return std::optional(found.front());
  return Status(Code::invalid_argument,
                fmt::format("{}: {} .gguf files; give the path of one of them, for instance {}",
                            folder, found.size(), printable(found.front())));
}

// The divisors turn the heads of full layers.
void add_rope_divisors(Contents& state) {
  constexpr std::string_view kName = "rope_freqs.weight";
  if (!state.model->ok()) return;
  const ModelConfig& config = state.model->value();
  std::uint32_t head_dim = config.head_dim;
  for (const LayerConfig& layer : config.layer_table) {
    if (layer.kind != LayerKind::full_attention) continue;
    head_dim = layer.head_dim;
    break;
  }
  for (const TensorInfo& tensor : state.tensors) {
    if (tensor.name != kName) continue;
    auto divisors = read_rope_divisors(state.weights[tensor.file], tensor, head_dim);
    if (divisors.ok()) {
      state.model->value().rope.divisors = std::move(divisors).value();
    } else {
      state.model = divisors.status();
    }
    return;
  }
}

// The shards after the first: their tensors join the first one's.
Status read_gguf_shards(Contents& state, const GgufMetadata& metadata) {
  const std::uint64_t count = metadata.whole(kGgufShardCount).value_or(1);
  if (count <= 1) return Status();
  const std::vector<std::string> shards = gguf_shards(state.path);
  if (shards.size() != count || metadata.whole(kGgufShardNumber) != 0u) {
    return Status(
        Code::corrupt,
        fmt::format("{}: says that it is shard {} of {}, which its name does not (it "
                    "should end in -00001-of-{:05}.gguf)",
                    state.path, metadata.whole(kGgufShardNumber).value_or(0) + 1, count, count));
  }
  for (std::uint32_t i = 1; i < count; ++i) {
    auto opened = File::open(shards[i]);
    if (!opened.ok()) return opened.status();
    auto parsed = parse_gguf(opened.value());
    if (!parsed.ok()) return parsed.status();
    const GgufMetadata& keys = parsed.value().metadata;
    if (keys.whole(kGgufShardNumber) != i || keys.whole(kGgufShardCount) != count) {
      return Status(Code::corrupt, fmt::format("{}: is not shard {} of {} of this model; download "
                                               "it again",
                                               shards[i], i + 1, count));
    }
    for (TensorInfo& tensor : parsed.value().tensors) {
      tensor.file = i;
      state.tensors.push_back(std::move(tensor));
    }
    state.files.push_back(shards[i]);
    state.weights.push_back(std::move(opened).value());
  }
  const auto promised = metadata.whole(kGgufShardTensors);
  if (promised && *promised != state.tensors.size()) {
    return Status(Code::corrupt, fmt::format("{}: promises {} tensors, but its shards have {}",
                                             state.path, *promised, state.tensors.size()));
  }
  return Status();
}

Status read_gguf(Contents& state) {
  // Any shard stands for all of them.
  if (const auto shards = gguf_shards(state.path); !shards.empty()) state.path = shards.front();
  auto opened = File::open(state.path);
  if (!opened.ok()) return opened.status();
  auto parsed = parse_gguf(opened.value());
  if (!parsed.ok()) return parsed.status();
  state.format = "gguf";
  state.files = {state.path};
  state.weights.push_back(std::move(opened).value());
  state.tensors = std::move(parsed.value().tensors);
  const GgufMetadata& metadata = parsed.value().metadata;
  if (auto shards = read_gguf_shards(state, metadata); !shards.ok()) return shards;
  const bool is_draft = is_draft_gguf(metadata);
  name_tensors(metadata, state.tensors);
  if (auto sorted = sort_tensors(state.files, state.tensors); !sorted.ok()) return sorted;
  auto text = gguf_text(state.path, metadata);
  if (!text.ok()) return text.status();
  state.tokenizer = std::move(text).value();
  const GgufModel model{state.path, metadata, state.tensors};
  if (is_draft) {
    state.draft = draft_config_from_gguf(model);
  } else {
    state.model = model_config_from_gguf(model);
    add_rope_divisors(state);
  }
  return Status();
}

Status read_weights(Contents& state) {
  state.format = "safetensors";
  for (std::uint32_t i = 0; i < state.files.size(); ++i) {
    auto opened = File::open(state.files[i]);
    if (!opened.ok()) return opened.status();
    auto parsed = parse_safetensors(opened.value());
    if (!parsed.ok()) return parsed.status();
    for (TensorInfo& tensor : parsed.value()) {
      tensor.file = i;
      state.tensors.push_back(std::move(tensor));
    }
    state.weights.push_back(std::move(opened).value());
  }
  return sort_tensors(state.files, state.tensors);
}

Status read_configs(Contents& state) {
  HfConfigFiles configs;
  configs.config_path = state.path + "/config.json";
  configs.generation_path = state.path + "/generation_config.json";
  auto config = read_json(configs.config_path);
  if (!config.ok()) return config.status();
  auto generation = read_json(configs.generation_path);
  if (!generation.ok()) return generation.status();
  auto text = read_hf_text(state.path);
  if (!text.ok()) return text.status();
  configs.config = std::move(config).value();
  configs.generation = std::move(generation).value();
  configs.text_stops = std::move(text.value().stops);
  if (auto joined = join_quantised(configs.config, configs.config_path, state.files, state.tensors);
      !joined.ok()) {
    return joined;
  }
  state.tokenizer = std::move(text.value().source);
  if (!configs.config.root()) {
    state.unconfigured = configs.config_path +
                         ": there is no such file; a model's folder holds one beside its weights";
    return Status();
  }
  if (is_draft_config(configs.config)) {
    state.draft = draft_config_from_hf(configs, names_of(state.tensors));
  } else {
    state.model = model_config_from_hf(configs);
  }
  return Status();
}

// Multimodal wrappers put the text model's tensors under a name of their own, and MLX calls stacked
// experts by how it runs them. Inside, a tensor has the name that it has in a text model alone.
Status unwrap_names(Contents& state) {
  constexpr std::string_view kStacked[] = {".switch_mlp.", ".switch_glu."};
  constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
  };
  bool renamed = false;
  for (TensorInfo& tensor : state.tensors) {
    for (const auto& [wrapped, plain] : kPrefixes) {
      if (!tensor.name.starts_with(wrapped)) continue;
      tensor.name.replace(0, wrapped.size(), plain);
      renamed = true;
      break;
    }
    for (const std::string_view stacked : kStacked) {
      const auto at = tensor.name.find(stacked);
      if (at == std::string::npos) continue;
      const bool inside = tensor.name.substr(0, at).ends_with(".experts");
      tensor.name.replace(at, stacked.size(), inside ? "." : ".experts.");
      renamed = true;
    }
  }
  return renamed ? sort_tensors(state.files, state.tensors) : Status();
}

Status read_folder(Contents& state) {
  auto found = find_safetensors(state.path);
  if (!found.ok()) return found.status();
  state.files = found.value().files;
  if (auto weights = read_weights(state); !weights.ok()) return weights;
  if (auto placed = check_placement(found.value(), state.tensors); !placed.ok()) return placed;
  if (auto names = unwrap_names(state); !names.ok()) return names;
  const bool gains_whole = unify_shapes(state.tensors);
  if (auto configs = read_configs(state); !configs.ok()) return configs;
  if (gains_whole && state.model && state.model->ok()) state.model->value().gain_from_one = false;
  return Status();
}

// A file alone: its tensors can be looked at, but nothing says what they are.
Status read_file(Contents& state) {
  state.files = {state.path};
  state.unconfigured = state.path + ": a weight file alone has no configuration; give its folder";
  return read_weights(state);
}

}  // namespace

struct Checkpoint::State : Contents {};

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  auto resolved = resolve_model(path);
  if (!resolved.ok()) return resolved.status();
  auto state = std::make_unique<State>();
  state->path = std::move(resolved).value();
  std::error_code error;
  const bool folder = fs::is_directory(state->path, error);
  if (folder) {
    auto gguf = find_gguf(state->path);
    if (!gguf.ok()) return gguf.status();
    if (gguf.value()) state->path = *gguf.value();
  }
  const std::string extension = fs::path(state->path).extension().string();
  Status read;
  if (extension == ".gguf") {
    read = read_gguf(*state);
  } else if (folder) {
    read = read_folder(*state);
  } else if (extension == ".safetensors") {
    read = read_file(*state);
  } else {
    read = Status(Code::invalid_argument,
                  fmt::format("{}: neither a folder nor a .gguf file", state->path));
  }
  if (!read.ok()) return read;
  for (const TensorInfo& tensor : state->tensors) state->bytes += tensor.bytes;
  return Checkpoint(std::move(state));
}

const std::string& Checkpoint::path() const { return state_->path; }
std::string_view Checkpoint::format() const { return state_->format; }
std::span<const std::string> Checkpoint::files() const { return state_->files; }
std::uint64_t Checkpoint::bytes() const { return state_->bytes; }
std::span<const TensorInfo> Checkpoint::tensors() const { return state_->tensors; }
const TokenizerSource& Checkpoint::tokenizer() const { return state_->tokenizer; }

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto& all = state_->tensors;
  const auto at = std::lower_bound(
      all.begin(), all.end(), name,
      [](const TensorInfo& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at == all.end() || at->name != name ? nullptr : &*at;
}

Status Checkpoint::read(const TensorInfo& tensor, std::uint64_t offset,
                        std::span<std::byte> out) const {
  if (tensor.file >= state_->weights.size() || out.size() > tensor.bytes ||
      offset > tensor.bytes - out.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: bytes {}+{} are not in tensor '{}'", state_->path, offset,
                              out.size(), printable(tensor.file_name)));
  }
  if (!tensor.parts.empty()) return read_parts(state_->weights, tensor, offset, out);
  auto read = state_->weights[tensor.file].read(tensor.offset + offset, out);
  if (read.ok()) return read;
  return Status(read.code(),
                fmt::format("{} (tensor '{}')", read.message(), printable(tensor.file_name)));
}

std::string Checkpoint::identity() const {
  std::string text;
  for (const File& file : state_->weights) {
    const std::string one = file.identity();
    if (one.empty()) return {};
    text += fmt::format("{}:", one.size()) + one;
  }
  return text;
}

bool Checkpoint::is_draft() const { return state_->draft.has_value(); }

Result<ModelConfig> Checkpoint::model_config() const {
  if (state_->draft) return draft_as_model(state_->path);
  if (state_->model) return *state_->model;
  return Status(Code::not_found, state_->unconfigured);
}

Result<DraftConfig> Checkpoint::draft_config() const {
  if (state_->draft) return *state_->draft;
  if (state_->model) return model_as_draft(state_->path);
  return Status(Code::not_found, state_->unconfigured);
}

}  // namespace drafthouse
