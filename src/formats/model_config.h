#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drafthouse {

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn, proportional };

// Rotary position embedding (half-split form).
struct RopeConfig {
  double theta = 10000.0;
  // Leading values of a head that are rotated; 0: the whole head.
  std::uint32_t rotary_dim = 0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double original_max_positions = 0.0;     // llama3, yarn
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> attention_factor;  // yarn; absent: 0.1·ln(factor) + 1
  bool truncate = true;                    // yarn: its boundaries are whole pairs
  double rotated_part = 1.0;               // proportional: leading part of the pairs that turns
  // GGUF's rope_freqs.weight: after the scaling above, inv_freq[i] /= divisors[i] for
  // i < head_dim / 2. Empty: none.
  std::vector<float> divisors;
};

// How a layer mixes positions.
enum class LayerKind : std::uint8_t { full_attention, sliding_attention, delta_rule, convolution };

// Whether a layer of this kind has keys and values; the others are recurrent.
inline bool attends(LayerKind kind) {
  return kind == LayerKind::full_attention || kind == LayerKind::sliding_attention;
}

// One layer of a target, where layers may differ.
struct LayerConfig {
  LayerKind kind = LayerKind::full_attention;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate_size = 0;  // of its dense MLP; 0: none
  bool experts = false;                 // it has experts, beside the dense MLP or instead of it
  // The earlier layer whose keys and values this one attends to; absent: its own.
  std::optional<std::uint32_t> kv_source = {};
};

// Of the gated MLPs; formulas: kernels.h.
enum class Activation : std::uint8_t { silu, gelu_tanh, clamped_silu };

// The experts of the layers that have some.
struct ExpertsConfig {
  std::uint32_t count = 0;    // 0: no layer has experts
  std::uint32_t per_row = 0;  // chosen for each position
  std::uint32_t intermediate_size = 0;
  bool normalise = true;  // the chosen probabilities are divided by their sum
};

// The recurrent layers of a model, which are all alike. See device/recurrent.h.
struct RecurrentConfig {
  std::uint32_t kernel = 0;       // taps of the convolution; 0: the model has no such layers
  std::uint32_t key_heads = 0;    // of the delta rule; none in a layer that is a convolution only
  std::uint32_t value_heads = 0;  // a multiple of key_heads
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;
};

// A target's hyperparameters, from config.json or GGUF metadata, checked and in one form.
struct ModelConfig {
  std::string family;  // "llama", "qwen3": model_type, or general.architecture
  std::uint32_t hidden_size = 0;
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t vocab_size = 0;  // rows of the embedding
  std::uint32_t max_positions = 0;
  double rms_eps = 1e-6;
  bool tied_head = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  Activation activation = Activation::silu;
  double activation_alpha = 1.702;  // clamped_silu
  double activation_limit = 7.0;    // clamped_silu
  ExpertsConfig experts = {};
  std::optional<double> attention_scale = {};  // absent: head_dim^−½
  double embedding_scale = 1.0;                // of embedding rows that enter the model
  double final_logit_softcap = 0.0;            // logits are c·tanh(logits / c); 0: they are not
  bool value_is_key = false;                   // full layers have no value projection
  std::uint32_t per_layer_input_size = 0;      // of the rows that every layer gets anew; 0: none
  bool gain_from_one = false;                  // norms store their gains minus 1
  bool attention_gate = false;                 // attention's output is gated, by rows of q_proj
  RecurrentConfig recurrent = {};
  RopeConfig rope;
  std::optional<RopeConfig> sliding_rope = {};  // of sliding layers; absent: rope
  std::uint32_t sliding_window = 0;  // positions that a sliding layer sees, its own included
  // One per layer; empty: all layers have full attention and the sizes above. See layer().
  std::vector<LayerConfig> layer_table = {};
  // GGUF stores the query and key rows of family "llama" for interleaved rotation.
  bool interleaved_rope_rows = false;
  // GGUF stores the value heads of Qwen3.5's recurrent layers in turns: head i with key head
  // i mod key heads.
  bool tiled_value_heads = false;
  // Union of the ids that end a text: generation_config, config, the tokenizer's eos and its
  // turn-end tokens. Ascending, all below vocab_size: a configuration that names another id is
  // refused, a tokenizer may have tokens that the model cannot give.
  std::vector<std::uint32_t> eos_ids;

  LayerConfig layer(std::uint32_t index) const {
    if (!layer_table.empty()) return layer_table[index];
    return {.kind = LayerKind::full_attention,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .intermediate_size = intermediate_size};
  }
};

enum class LayerAttention : std::uint8_t { full, sliding };

// What a DFlash2 draft has besides: convolutions around every sublayer, over the rows of a block,
// and a selector that chooses among the likeliest ids of a row knowing what was chosen in the row
// before.
struct Dflash2Config {
  std::uint32_t conv_kernel = 0;  // rows that a convolution sees, its own included; 0: a v1 draft
  std::uint32_t conv_group = 0;   // channels that share a row's coefficient
  std::uint32_t selector_rank = 0;
  std::uint32_t selector_top_k = 0;
};

// A DFlash draft's hyperparameters, from z-lab's or the speculators layout, or GGUF.
struct DraftConfig {
  std::string architecture;  // "DFlashDraftModel", "DFlash2DraftModel"
  std::uint32_t hidden_size = 0;
  std::uint32_t target_hidden_size = 0;  // of a tap; 0: hidden_size
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate_size = 0;
  std::uint32_t vocab_size = 0;  // of the target
  // Rows of its own head, each an id of the target by d2t; 0: it proposes any id.
  std::uint32_t draft_vocab_size = 0;
  bool id_map_is_absolute = false;  // d2t holds ids of the target, as in GGUF; else offsets to them
  bool own_embedding = false;       // else it borrows its target's
  bool own_head = false;            // else it borrows its target's
  std::uint32_t max_positions = 0;
  double rms_eps = 1e-6;
  bool attention_bias = false;
  RopeConfig rope;
  std::uint32_t block_size = 16;  // anchor included
  std::uint32_t mask_id = 0;
  std::vector<std::uint32_t> target_layer_ids;  // 0-based decoder layers whose output is tapped
  std::optional<std::uint32_t> num_target_layers;
  std::vector<LayerAttention> layer_types;  // one per layer
  std::uint32_t sliding_window = 0;         // 0: no sliding layer
  std::optional<bool> is_causal;            // explicit, for all layers
  std::optional<double> input_embedding_scale;
  double output_multiplier = 1.0;
  double final_logit_softcapping = 0.0;  // 0: none of its own
  Dflash2Config dflash2 = {};

  bool is_dflash2() const { return dflash2.conv_kernel != 0; }
  std::uint32_t tap_size() const {
    return target_hidden_size != 0 ? target_hidden_size : hidden_size;
  }
  // Whether block rows of layer `l` see only earlier block rows: an explicit is_causal decides,
  // else sliding layers are causal inside the block and full layers are not.
  bool causal_in_block(std::uint32_t l) const {
    return is_causal.value_or(layer_types[l] == LayerAttention::sliding);
  }
};

}  // namespace drafthouse
