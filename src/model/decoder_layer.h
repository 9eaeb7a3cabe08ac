#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/block_convolution.h"
#include "model/recurrent_layer.h"
#include "model/scratch.h"
#include "model/weight_loader.h"

namespace drafthouse {

// Sizes of a decoder layer.
struct LayerShape {
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate = 0;  // of the dense MLP; 0: none
  float eps = 1e-6f;
  float attention_scale = 0.0f;  // 0: head_dim^−½
  bool attention_gate = false;   // rows of q behind the queries gate attention's output, by sigmoid
  float gain_offset = 0.0f;      // added to the gains of the norms as they are stored
  Gating gating = {};
  std::uint32_t experts = 0;  // 0: none
  std::uint32_t experts_per_row = 0;
  std::uint32_t expert_intermediate = 0;
  bool normalise_experts = true;     // see RouteJob::normalise
  std::uint32_t layer_input = 0;     // floats of the row that the layer gets anew; 0: none
  std::uint32_t layer_input_at = 0;  // its first column in Scratch::layer_inputs
  std::uint32_t layer_inputs = 0;    // columns there

  std::uint32_t q_width() const { return heads * head_dim; }
  std::uint32_t q_rows() const { return attention_gate ? 2 * q_width() : q_width(); }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
  std::uint32_t qkv_width() const { return q_rows() + 2 * kv_width(); }

  // unsupported when no kernel takes heads of this size. The only check of it on the way to the
  // kernels; `label` is the model, for the message.
  Status check(const std::string& label) const;
};

// Which tensors a layer's attention has.
struct AttentionTensors {
  bool qk_norm = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool interleaved_rope_rows = false;  // query and key rows are stored for rotation of (2i, 2i + 1)
  bool own_kv = true;
  bool value_is_key = false;  // no value projection
};

// Weights of one layer: attention, then a gated MLP or experts or both, each after a norm and with
// a residual. Matrices are [outputs, inputs]; a part that a family does not have is empty or null,
// and is left out of the pass. Targets and drafts are made of these.
struct DecoderLayer {
  NormWeights attention_norm;  // [hidden]
  RecurrentWeights recurrent;  // in place of attention, in layers whose plan says so
  PackedMatrix q;              // [q_rows, hidden]
  PackedMatrix k;              // [kv_width, hidden]
  PackedMatrix v;              // [kv_width, hidden]; none: values are the keys before their norm
  PackedMatrix o;              // [hidden, q_width]
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* o_bias = nullptr;
  const float* sinks = nullptr;  // [heads]; see AttentionJob
  NormWeights q_norm;            // [head_dim]
  NormWeights k_norm;
  NormWeights v_norm;
  NormWeights attention_out_norm;  // [hidden], of what attention adds to the stream

  BlockConvolution attention_conv;  // around attention, of a DFlash2 draft
  BlockConvolution mlp_conv;        // around the MLP

  NormWeights mlp_norm;        // [hidden]
  PackedMatrix gate;           // [intermediate, hidden]
  PackedMatrix up;             // [intermediate, hidden]
  PackedMatrix down;           // [hidden, intermediate]
  NormWeights dense_out_norm;  // [hidden], of the dense MLP's output beside experts

  PackedMatrix dense_gate;  // [1, hidden]: sigmoid of it scales the dense MLP's output

  PackedMatrix router;                  // [experts, hidden]
  const float* router_bias = nullptr;   // [experts]
  const float* expert_scale = nullptr;  // [experts]; see RouteJob
  NormWeights router_norm;              // [hidden]; none: mlp_norm
  NormWeights expert_norm;              // [hidden]; none: mlp_norm
  NormWeights expert_out_norm;          // [hidden], of the experts' sum
  std::vector<ExpertWeights> experts;

  NormWeights mlp_out_norm;  // [hidden], of what MLP and experts add to the stream

  // stream += norm(input_projection · (act(input_gate · stream) · this layer's input row))
  PackedMatrix input_gate;              // [layer_input, hidden]
  PackedMatrix input_projection;        // [hidden, layer_input]
  NormWeights input_norm;               // [hidden]
  const float* output_scale = nullptr;  // [1]: the stream is multiplied by it at the end

  // Declares tensors under Hugging Face's names: `prefix`input_layernorm.weight,
  // `prefix`self_attn.q_proj.weight, …
  void declare_attention(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                         const AttentionTensors& tensors);
  // `prefix`mlp.gate_proj.weight, … and the norm before, of this name. `mlp`: another name for
  // "mlp.".
  void declare_mlp(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                   const std::string& norm = "post_attention_layernorm.weight",
                   const std::string& mlp = "mlp.");

  // Calls visit(const PackedMatrix&) for every matrix that the layer has, those of experts apart.
  template <class Visit>
  void each_matrix(Visit&& visit) const {
    for (const PackedMatrix* matrix :
         {&q, &k, &v, &o, &gate, &up, &down, &dense_gate, &router, &input_gate, &input_projection,
          &attention_conv.projection, &mlp_conv.projection}) {
      if (matrix->outputs != 0) visit(*matrix);
    }
    recurrent.each_matrix(visit);
  }
  // The same for the matrices of the first `count` experts.
  template <class Visit>
  void each_expert_matrix(std::size_t count, Visit&& visit) const {
    for (std::size_t e = 0; e < count && e < experts.size(); ++e) {
      for (const PackedMatrix* matrix : {&experts[e].gate, &experts[e].up, &experts[e].down}) {
        visit(*matrix);
      }
    }
  }
  // Packed bytes of the matrices that a pass reads in which this many experts have rows, and the
  // number of weights.
  std::size_t matrix_bytes(std::size_t experts_read) const;
  std::uint64_t matrix_weights(std::size_t experts_read) const;
};

// How a layer's attention differs between its users.
struct LayerAttentionJob {
  KvLayout kv;
  bool own_kv = true;        // false: attends to what an earlier layer stored there
  std::uint32_t rotary = 0;  // index into StepTable::rotary
  std::uint32_t window = 0;
  std::uint32_t sink = 0;
  std::byte* block_pages = nullptr;  // set for a draft's block (see AttentionJob)
  std::size_t block_page_bytes = 0;
  bool causal_in_block = false;
};

// scratch.hidden += o · attention(norm(scratch.hidden)); stores the rows' keys and values.
void run_attention(Device& device, const StepTable& step, Scratch& scratch,
                   const DecoderLayer& layer, const LayerShape& shape, const LayerAttentionJob& job,
                   bool compute_fp32);

// scratch.hidden += down · (act(gate · x) · (up · x)), x = norm(scratch.hidden), and what else the
// layer has after its attention: experts, norms of the outputs, an input of its own, a scale.
void run_feed_forward(Device& device, const StepTable& step, Scratch& scratch,
                      const DecoderLayer& layer, const LayerShape& shape, bool compute_fp32);

// Logits' inputs: norms rows step.logit_rows of scratch.hidden into the front rows of
// scratch.normed.
void gather_normed(Device& device, const StepTable& step, Scratch& scratch, NormWeights norm,
                   std::uint32_t hidden);

}  // namespace drafthouse
