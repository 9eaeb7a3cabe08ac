#include "engine/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "engine/internals.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kDraftLayers = 5;
constexpr std::uint32_t kTaps = 5;
constexpr std::uint32_t kBlock = 16;

struct Shape {
  std::string_view name;
  std::string_view family;
  std::uint32_t hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, positions;
  bool tied_head;
  double rms_eps, theta;
  void (*more)(ModelConfig&) = nullptr;  // what the family has besides
};

void qwen3_moe_experts(ModelConfig& config) {
  config.experts = {.count = 128, .per_row = 8, .intermediate_size = 768, .normalise = true};
  config.layer_table.assign(config.layers, config.layer(0));
  for (LayerConfig& layer : config.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 0;
  }
}

// Every sixth layer is full, with heads twice as large and fewer of keys; the others are sliding.
void gemma4_layers(ModelConfig& config) {
  config.activation = Activation::gelu_tanh;
  config.attention_scale = 1.0;
  config.embedding_scale = std::sqrt(config.hidden_size);
  config.final_logit_softcap = 30.0;
  config.value_is_key = true;
  config.sliding_window = 1024;
  config.sliding_rope = RopeConfig{};
  config.rope.scaling = RopeScaling::proportional;
  config.rope.rotated_part = 0.25;
  config.layer_table.assign(config.layers, config.layer(0));
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    LayerConfig& layer = config.layer_table[i];
    if ((i + 1) % 6 != 0) {
      layer.kind = LayerKind::sliding_attention;
      continue;
    }
    layer.kv_heads /= 4;
    layer.head_dim *= 2;
  }
}

void gemma4_experts(ModelConfig& config) {
  gemma4_layers(config);
  config.experts = {.count = 128, .per_row = 8, .intermediate_size = 704, .normalise = true};
  for (LayerConfig& layer : config.layer_table) layer.experts = true;
}

// Every fourth layer is gated attention, the others gated delta rules with two value heads for each
// key head, or three where the model is wide.
void qwen3_5_layers(ModelConfig& config) {
  const std::uint32_t value_heads = config.hidden_size > 4096 ? 48 : 32;
  config.recurrent = {
      .kernel = 4, .key_heads = 16, .value_heads = value_heads, .key_dim = 128, .value_dim = 128};
  config.gain_from_one = true;
  config.attention_gate = true;
  config.rope.rotary_dim = config.head_dim / 4;
  config.layer_table.assign(config.layers, config.layer(0));
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    if ((i + 1) % 4 != 0) config.layer_table[i].kind = LayerKind::delta_rule;
  }
}

void qwen3_5_experts(ModelConfig& config) {
  qwen3_5_layers(config);
  config.experts = {.count = 256, .per_row = 8, .intermediate_size = 512, .normalise = true};
  for (LayerConfig& layer : config.layer_table) {
    layer.experts = true;
    layer.intermediate_size = 512;  // of the expert that all rows share
  }
}

constexpr Shape kShapes[] = {
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-1.7b", "qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6},
    {"llama-3.1-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, false, 1e-5, 5e5},
    {"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 64, 4864, 151936, 32768, true, 1e-6, 1e6},
    {"qwen3-30b-a3b", "qwen3_moe", 2048, 48, 32, 4, 128, 6144, 151936, 40960, false, 1e-6, 1e6,
     qwen3_moe_experts},
    {"qwen3.5-4b", "qwen3_5", 2560, 32, 16, 4, 256, 9216, 248320, 262144, true, 1e-6, 1e7,
     qwen3_5_layers},
    {"qwen3.5-27b", "qwen3_5", 5120, 64, 24, 4, 256, 17408, 248320, 262144, false, 1e-6, 1e7,
     qwen3_5_layers},
    {"qwen3.5-35b-a3b", "qwen3_5", 2048, 40, 16, 2, 256, 6144, 248320, 262144, false, 1e-6, 1e7,
     qwen3_5_experts},
    {"gemma-4-31b", "gemma4", 5376, 60, 32, 16, 256, 21504, 262144, 262144, true, 1e-6, 1e6,
     gemma4_layers},
    {"gemma-4-26b-a4b", "gemma4", 2816, 30, 16, 8, 256, 2112, 262144, 262144, true, 1e-6, 1e6,
     gemma4_experts},
    {"smollm2-135m", "llama", 576, 30, 9, 3, 64, 1536, 49152, 8192, true, 1e-5, 1e5},
};

ModelConfig config_of(const Shape& shape) {
  ModelConfig config;
  config.family = shape.family;
  config.hidden_size = shape.hidden;
  config.layers = shape.layers;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.intermediate_size = shape.intermediate;
  config.vocab_size = shape.vocab;
  config.max_positions = shape.positions;
  config.rms_eps = shape.rms_eps;
  config.tied_head = shape.tied_head;
  config.rope.theta = shape.theta;
  if (shape.name == "llama-3.1-8b") {
    config.rope.scaling = RopeScaling::llama3;
    config.rope.factor = 8.0;
    config.rope.low_freq_factor = 1.0;
    config.rope.high_freq_factor = 4.0;
    config.rope.original_max_positions = 8192;
  }
  if (shape.more != nullptr) shape.more(config);
  return config;
}

// The packed bytes of both models; 0 for a draft that is not there.
struct PairBytes {
  std::uint64_t target = 0;
  std::uint64_t draft = 0;
};
Result<PairBytes> bytes_of(const SyntheticPair& pair, const RandomSource& target,
                           const RandomSource& draft, bool compute_fp32) {
  PairBytes bytes;
  const Result<std::uint64_t> of_target = Decoder::bytes_to_pack(pair.target, target, compute_fp32);
  if (!of_target.ok()) return of_target.status();
  bytes.target = of_target.value();
  if (!pair.with_draft) return bytes;
  const Result<std::uint64_t> of_draft = DFlashDraft::bytes_to_pack(
      draft_for(pair.target), pair.target.hidden_size, draft, compute_fp32);
  if (!of_draft.ok()) return of_draft.status();
  bytes.draft = of_draft.value();
  return bytes;
}

RandomSource draft_source(const SyntheticPair& pair) {
  return {pair.name + " draft", pair.draft_format.value_or(pair.format)};
}

Status check_memory(const SyntheticPair& pair, const PairBytes& bytes) {
  if (pair.memory_limit == 0 || bytes.target + bytes.draft <= pair.memory_limit) return {};
  const auto gigabytes = [](std::uint64_t count) { return static_cast<double>(count) / 1e9; };
  std::string draft_part;
  if (bytes.draft != 0) {
    draft_part = fmt::format(" + {:.2f} GB (draft)", gigabytes(bytes.draft));
  }
  return Status(
      Code::no_memory,
      fmt::format("{}: weights need {:.2f} GB (target){}, but {:.2f} GB of memory is "
                  "free; choose a smaller shape or a narrower format",
                  pair.name, gigabytes(bytes.target), draft_part, gigabytes(pair.memory_limit)));
}

Status check_inputs(const SyntheticPair& pair, RowFormat format, const RandomSource& source) {
  if (source.uneven_inputs() == 0) return {};
  return Status(
      Code::invalid_argument,
      fmt::format("{}: has a matrix of {} inputs, and {} needs a multiple of {}; choose "
                  "another shape or format",
                  pair.name, source.uneven_inputs(), name_of(format), group_inputs(format)));
}

}  // namespace

std::vector<std::string_view> published_shapes() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

Result<ModelConfig> published_shape(std::string_view name) {
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return config_of(shape);
  }
  return Status(Code::not_found, fmt::format("no shape is named \"{}\"; known: {}", name,
                                             fmt::join(published_shapes(), ", ")));
}

DraftConfig draft_for(const ModelConfig& target) {
  DraftConfig draft;
  draft.architecture = "DFlashDraftModel";
  draft.hidden_size = target.hidden_size;
  draft.layers = std::min(kDraftLayers, target.layers);
  draft.heads = target.heads;
  draft.kv_heads = target.kv_heads;
  draft.head_dim = target.head_dim;
  draft.intermediate_size = target.intermediate_size;
  draft.vocab_size = target.vocab_size;
  draft.max_positions = target.max_positions;
  draft.rms_eps = target.rms_eps;
  draft.rope = target.rope;
  draft.rope.rotary_dim = 0;
  if (target.rope.scaling == RopeScaling::proportional) {
    draft.rope = {};
    draft.rope.theta = target.rope.theta;
  }
  draft.block_size = kBlock;
  draft.mask_id = target.vocab_size - 1;
  draft.num_target_layers = target.layers;
  draft.layer_types.assign(draft.layers, LayerAttention::full);
  // Spread as published drafts have them: from the second layer to the third from last.
  const std::uint32_t taps = std::min(kTaps, target.layers);
  const std::uint32_t first = target.layers >= kTaps + 3 ? 1 : 0;
  const std::uint32_t last = target.layers >= kTaps + 3 ? target.layers - 3 : target.layers - 1;
  for (std::uint32_t i = 0; i < taps; ++i) {
    draft.target_layer_ids.push_back(
        taps == 1 ? first : first + (i * (last - first) + (taps - 1) / 2) / (taps - 1));
  }
  return draft;
}

std::uint64_t packed_bytes(const SyntheticPair& pair) {
  const Result<PairBytes> bytes =
      bytes_of(pair, RandomSource(pair.name, pair.format), draft_source(pair), false);
  return bytes.ok() ? bytes.value().target + bytes.value().draft : 0;
}

Result<std::unique_ptr<Engine>> make_synthetic_engine(const SyntheticPair& pair,
                                                      const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const DraftConfig draft_config = draft_for(pair.target);
  const RandomSource target(pair.name, pair.format);
  const RandomSource draft = draft_source(pair);
  const Result<PairBytes> bytes = bytes_of(pair, target, draft, options.compute_fp32);
  if (!bytes.ok()) return bytes.status();
  if (Status s = check_inputs(pair, pair.format, target); !s.ok()) return s;
  if (Status s = check_inputs(pair, pair.draft_format.value_or(pair.format), draft); !s.ok())
    return s;
  if (Status s = check_memory(pair, bytes.value()); !s.ok()) return s;
  PairSource source{.target_config = &pair.target, .target = &target};
  if (pair.with_draft) {
    source.draft_config = &draft_config;
    source.draft = &draft;
  }
  auto parts = std::make_unique<Engine::Internals>();
  if (Status s = assemble(*parts, source, options, {}, pair.target.vocab_size); !s.ok()) return s;
  parts->info.target = target.label();
  if (pair.with_draft) parts->info.draft = draft.label();
  parts->info.load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Engine::wrap(std::move(parts));
}

}  // namespace drafthouse
