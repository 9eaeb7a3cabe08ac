#include "engine/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

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
};
constexpr Shape kShapes[] = {
    {"qwen3-0.6b", "qwen3", 1024, 28, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-1.7b", "qwen3", 2048, 28, 16, 8, 128, 6144, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-4b", "qwen3", 2560, 36, 32, 8, 128, 9728, 151936, 40960, true, 1e-6, 1e6},
    {"qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6},
    {"llama-3.1-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 131072, false, 1e-5, 5e5},
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
  return config;
}

// The tensors of one model, and how many bytes its matrices take once packed.
class Tensors {
 public:
  Tensors(std::string label, Dtype format) : source_(std::move(label)), format_(format) {}

  void matrix(const std::string& name, std::uint32_t outputs, std::uint32_t inputs) {
    source_.add(name, format_, {outputs, inputs});
    bytes_ += packed_bytes(format_, outputs, inputs);
  }
  void norm(const std::string& name, std::uint32_t width) {
    source_.add(name, Dtype::f32, {width});
  }
  // `Config`: ModelConfig or DraftConfig; their layers are alike.
  template <class Config>
  void layers(const std::string& prefix, const Config& config, bool qk_norm) {
    const std::uint32_t hidden = config.hidden_size;
    const std::uint32_t q = config.heads * config.head_dim;
    const std::uint32_t kv = config.kv_heads * config.head_dim;
    for (std::uint32_t i = 0; i < config.layers; ++i) {
      const std::string layer = fmt::format("{}layers.{}.", prefix, i);
      norm(layer + "input_layernorm.weight", hidden);
      matrix(layer + "self_attn.q_proj.weight", q, hidden);
      matrix(layer + "self_attn.k_proj.weight", kv, hidden);
      matrix(layer + "self_attn.v_proj.weight", kv, hidden);
      matrix(layer + "self_attn.o_proj.weight", hidden, q);
      if (qk_norm) {
        norm(layer + "self_attn.q_norm.weight", config.head_dim);
        norm(layer + "self_attn.k_norm.weight", config.head_dim);
      }
      norm(layer + "post_attention_layernorm.weight", hidden);
      matrix(layer + "mlp.gate_proj.weight", config.intermediate_size, hidden);
      matrix(layer + "mlp.up_proj.weight", config.intermediate_size, hidden);
      matrix(layer + "mlp.down_proj.weight", hidden, config.intermediate_size);
    }
  }

  const RandomSource& source() const { return source_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  RandomSource source_;
  Dtype format_;
  std::uint64_t bytes_ = 0;
};

Tensors target_tensors(const SyntheticPair& pair) {
  const ModelConfig& config = pair.target;
  Tensors tensors(pair.name, pair.format);
  tensors.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  tensors.layers("model.", config, config.family == "qwen3");
  tensors.norm("model.norm.weight", config.hidden_size);
  if (!config.tied_head) tensors.matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  return tensors;
}

Tensors draft_tensors(const SyntheticPair& pair, const DraftConfig& config) {
  Tensors tensors(pair.name + " draft", pair.format);
  const auto taps = static_cast<std::uint32_t>(config.target_layer_ids.size());
  tensors.matrix("fc.weight", config.hidden_size, taps * pair.target.hidden_size);
  tensors.norm("hidden_norm.weight", config.hidden_size);
  tensors.norm("norm.weight", config.hidden_size);
  tensors.layers("", config, true);
  return tensors;
}

Status check_memory(const SyntheticPair& pair, std::uint64_t target, std::uint64_t draft) {
  if (pair.memory_limit == 0 || target + draft <= pair.memory_limit) return {};
  const auto gigabytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::string draft_part;
  if (draft != 0) draft_part = fmt::format(" + {:.2f} GB (draft)", gigabytes(draft));
  return Status(
      Code::no_memory,
      fmt::format("{}: weights need {:.2f} GB (target){}, but {:.2f} GB of memory is "
                  "free; choose a smaller shape or a narrower format",
                  pair.name, gigabytes(target), draft_part, gigabytes(pair.memory_limit)));
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
  const std::uint64_t target = target_tensors(pair).bytes();
  return pair.with_draft ? target + draft_tensors(pair, draft_for(pair.target)).bytes() : target;
}

Result<std::unique_ptr<Engine>> make_synthetic_engine(const SyntheticPair& pair,
                                                      const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const DraftConfig draft_config = draft_for(pair.target);
  const Tensors target = target_tensors(pair);
  const Tensors draft = draft_tensors(pair, draft_config);
  if (Status s = check_memory(pair, target.bytes(), pair.with_draft ? draft.bytes() : 0); !s.ok()) {
    return s;
  }
  PairSource source{.target_config = &pair.target, .target = &target.source()};
  if (pair.with_draft) {
    source.draft_config = &draft_config;
    source.draft = &draft.source();
  }
  auto parts = std::make_unique<Engine::Internals>();
  if (Status s = assemble(*parts, source, options, {}, pair.target.vocab_size); !s.ok()) return s;
  parts->info.target = target.source().label();
  if (pair.with_draft) parts->info.draft = draft.source().label();
  parts->info.load_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Engine::wrap(std::move(parts));
}

}  // namespace drafthouse
