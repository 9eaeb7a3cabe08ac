#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "model/scratch.h"
#include "model/weight_loader.h"

namespace drafthouse {

// Sizes of a decoder layer.
struct LayerShape {
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate = 0;
  float eps = 1e-6f;

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t qkv_width() const { return q_width() + 2 * kv_width(); }

  // unsupported when no kernel takes heads of this size. The only check of it on the way to the
  // kernels; `label` is the model, for the message.
  Status check(const std::string& label) const;
};

// Weights of one layer: attention and gated MLP, each after a norm and with a residual. Matrices are
// [outputs, inputs]. Targets and drafts are made of these.
struct DecoderLayer {
  NormWeights attention_norm;  // [hidden]
  PackedMatrix q;              // [q_width, hidden]
  PackedMatrix k;              // [kv_width, hidden]
  PackedMatrix v;              // [kv_width, hidden]
  PackedMatrix o;              // [hidden, q_width]
  NormWeights q_norm;          // [head_dim], gain null where the family has none
  NormWeights k_norm;
  NormWeights mlp_norm;        // [hidden]
  PackedMatrix gate;           // [intermediate, hidden]
  PackedMatrix up;             // [intermediate, hidden]
  PackedMatrix down;           // [hidden, intermediate]

  // Declares the tensors `prefix`input_layernorm.weight, `prefix`self_attn.q_proj.weight, … under
  // Hugging Face's names. `qk_norm`: the layer has q_norm and k_norm. `interleaved_rope_rows`: query
  // and key rows are stored for rotation of (2i, 2i + 1). `own_kv`: it has keys and values of its own.
  void declare(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
               bool qk_norm, bool interleaved_rope_rows, bool own_kv = true);

  // Calls visit(const PackedMatrix&) for every matrix that the layer has.
  template <class Visit>
  void each_matrix(Visit&& visit) const {
    for (const PackedMatrix* matrix : {&q, &k, &v, &o, &gate, &up, &down}) {
      if (matrix->outputs != 0) visit(*matrix);
    }
  }
  // Packed bytes of the matrices, and their number of weights.
  std::size_t matrix_bytes() const;
  std::uint64_t matrix_weights() const;
};

// How a layer's attention differs between its users.
struct LayerAttentionJob {
  KvLayout kv;
  bool own_kv = true;         // false: attends to what an earlier layer stored there
  std::uint32_t rotary = 0;   // index into StepTable::rotary
  std::uint32_t window = 0;
  std::byte* block_pages = nullptr;  // set for a draft's block (see AttentionJob)
  std::size_t block_page_bytes = 0;
  bool causal_in_block = false;
};

// scratch.hidden += o · attention(norm(scratch.hidden)); stores the rows' keys and values.
void run_attention(Device& device, const StepTable& step, Scratch& scratch,
                   const DecoderLayer& layer, const LayerShape& shape, const LayerAttentionJob& job,
                   bool compute_fp32);

// scratch.hidden += down · (silu(gate · x) · (up · x)), x = norm(scratch.hidden).
void run_mlp(Device& device, const StepTable& step, Scratch& scratch, const DecoderLayer& layer,
             const LayerShape& shape, bool compute_fp32);

// Logits' inputs: norms rows step.logit_rows of scratch.hidden into the front rows of scratch.normed.
void gather_normed(Device& device, const StepTable& step, Scratch& scratch, NormWeights norm,
                   std::uint32_t hidden);

}  // namespace drafthouse
