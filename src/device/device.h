#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/recurrent.h"
#include "device/step_table.h"
#include "kernels/kernels.h"
#include "kernels/packed.h"
#include "kernels/reordered.h"

namespace drafthouse {

// Part of a linear layer: a packed matrix whose results go to columns out_column … of the output.
struct LinearSegment {
  PackedMatrix weights;
  std::uint32_t out_column = 0;
};

// A norm over the last axis: gain is [width].
struct NormWeights {
  const float* gain = nullptr;
  float eps = 1e-6f;
};

// Where the keys and values of one layer lie inside the pages of its group, and their shape.
struct KvLayout {
  KvKind kind = KvKind::bf16;
  std::uint32_t group = 0;       // index into StepSpan::pages
  std::size_t layer_offset = 0;  // bytes from the page's start to this layer's keys
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;

  std::size_t head_bytes() const { return kPagePositions * head_dim * kv_bytes(kind); }
  std::size_t key_offset(std::uint32_t head) const { return layer_offset + head * head_bytes(); }
  std::size_t value_offset(std::uint32_t head) const {
    return layer_offset + (kv_heads + head) * head_bytes();
  }
  // Bytes of one layer in a page.
  std::size_t layer_bytes() const { return 2 * kv_heads * head_bytes(); }
};

// Rotates queries and keys (after their norms, when there are any) and stores keys and values.
struct RopeKvJob {
  KvLayout kv;
  std::uint32_t heads = 0;              // query heads; 0: keys and values only
  const RotaryTable* rotary = nullptr;  // pairs (i, i + pairs) of a head are turned
  NormWeights q_norm = {};              // gain null: no norm
  NormWeights k_norm = {};
  NormWeights v_norm = {};
  bool value_is_key = false;  // v := k as it is before its norm
  float* q = nullptr;         // [rows], in place
  float* k = nullptr;         // null: queries only
  float* v = nullptr;
  std::size_t stride = 0;  // floats between rows of q, k and v
  // A draft block's keys go to slots 0, 1, … of a page of its own, not to the sequence's pages:
  // span i has block_pages + i · block_page_bytes.
  std::byte* block_pages = nullptr;
  std::size_t block_page_bytes = 0;
};

// softmax(scale · q kᵀ) v per query head, query head h reading key/value head h / (heads /
// kv_heads).
//
// Row at position p sees positions max(0, p − window + 1) … p of its sequence (window 0: all), and
// those below `sink`. With block pages, rows are a draft's block: a row sees the context, the
// positions before the span that its window reaches, and the block's rows (up to itself when
// causal_in_block).
struct AttentionJob {
  KvLayout kv;
  std::uint32_t heads = 0;
  std::uint32_t window = 0;
  std::uint32_t sink = 0;  // whole pages
  float scale = 1.0f;
  // [heads]: a logit of its own that each head's softmax counts, without a value; null: none.
  const float* sinks = nullptr;
  const float* q = nullptr;
  std::size_t q_stride = 0;
  float* out = nullptr;  // [rows][heads × head_dim]
  const std::byte* block_pages = nullptr;
  std::size_t block_page_bytes = 0;
  bool causal_in_block = false;
};

// For every row of a span, from its first row on:
//   out[i][c] = Σt (base[t][c] + dynamic[i][t · groups + group of c]) · in[i − t][c],  t ascending
// Rows before the span's first are zeros; a group is width / groups neighbouring channels.
struct BlockConvolutionJob {
  std::uint32_t kernel = 0;
  std::uint32_t groups = 0;
  std::uint32_t width = 0;
  const float* base = nullptr;     // [kernel][width]
  const float* dynamic = nullptr;  // [rows]
  std::size_t dynamic_stride = 0;  // floats
  float* inout = nullptr;          // [rows][width]
};

// How a gated MLP joins its halves; the formulas stand in kernels.h.
struct Gating {
  enum class Kind : std::uint8_t { silu, gelu_tanh, clamped_silu };
  Kind kind = Kind::silu;
  float alpha = 1.702f;  // clamped_silu
  float limit = 7.0f;    // clamped_silu
};

// out[r][i] = act(gate[r][i]) · up[r][i], i < width. Strides in floats; out is [rows][width].
struct GateJob {
  Gating gating = {};
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  const float* gate = nullptr;
  std::size_t gate_stride = 0;
  const float* up = nullptr;
  std::size_t up_stride = 0;
  float* out = nullptr;
};

// Chooses experts for every row: the `chosen` largest of softmax(logits[r]), the lowest index among
// equals; with their probabilities, divided by their sum (`normalise`) and times expert_scale.
struct RouteJob {
  std::uint32_t rows = 0;
  std::uint32_t experts = 0;
  std::uint32_t chosen = 0;
  bool normalise = true;
  float* logits = nullptr;              // [rows][experts]; overwritten
  const float* expert_scale = nullptr;  // [experts]; null: none
  std::uint32_t* ids = nullptr;         // [rows][chosen], ascending in a row
  float* weights = nullptr;             // [rows][chosen]
};

// One expert: a gated MLP, with biases where they are not null.
struct ExpertWeights {
  PackedMatrix gate;  // [intermediate, hidden]
  PackedMatrix up;    // [intermediate, hidden]
  PackedMatrix down;  // [hidden, intermediate]
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

// out[r] (+)= Σ weights[r][i] · expert ids[r][i] (x[r]), in the order of ids[r]. Every expert's
// weights are read once for all its rows.
struct ExpertsJob {
  std::span<const ExpertWeights> experts = {};
  Gating gating = {};
  bool fp32 = false;  // inputs are not rounded
  std::uint32_t rows = 0;
  std::uint32_t chosen = 0;
  std::uint32_t hidden = 0;
  std::uint32_t intermediate = 0;
  const std::uint32_t* ids = nullptr;  // [rows][chosen], as route() gives them
  const float* weights = nullptr;      // [rows][chosen]
  const float* x = nullptr;            // [rows][hidden]
  // Working memory for rows × chosen rows of hidden, 2 × intermediate and intermediate floats.
  float* slots = nullptr;
  float* gate_up = nullptr;
  float* gated = nullptr;
  float* out = nullptr;  // [rows][hidden]
  bool accumulate = false;
};

class Device;

// Lets a device watch a flag for the time of one pass.
class PassWatch {
 public:
  PassWatch(Device& device, const std::atomic<bool>* cancel);
  ~PassWatch();
  PassWatch(const PassWatch&) = delete;
  PassWatch& operator=(const PassWatch&) = delete;

  // Whether the pass should end, or has left something out.
  bool cancelled() const;

 private:
  Device& device_;
  const std::atomic<bool>* cancel_;
};

// A processor with its memory and the operations that models are made of. Confined to the engine
// thread that uses it; several engines may share one device's compute threads.
class Device {
 public:
  virtual ~Device() = default;

  // From now on operations leave out what they have not begun once *cancel is set (null: never), so
  // that a long one ends soon. given_up() says whether one did since; it stays true, whatever
  // *cancel becomes, until the next watch(). The results of a pass after which it is true are
  // worthless.
  virtual void watch(const std::atomic<bool>* cancel) = 0;
  virtual bool given_up() const = 0;

  // out[r] = scale · row ids[r] of the table. out: [rows][table.inputs].
  virtual void embed(const StepTable& step, const PackedMatrix& table, float scale, float* out) = 0;
  // out[r][column + o] (+)= x[r] · w[o] for every segment. x: [rows][inputs], stride in floats.
  // `fp32`: inputs are not rounded.
  virtual void linear(std::span<const LinearSegment> segments, bool fp32, const float* x,
                      std::size_t x_stride, std::uint32_t rows, float* out, std::size_t out_stride,
                      bool accumulate) = 0;
  virtual void rms_norm(const float* in, std::size_t in_stride, std::uint32_t rows,
                        std::uint32_t width, NormWeights norm, float* out,
                        std::size_t out_stride) = 0;
  virtual void gate_mul(const GateJob& job) = 0;
  // out[r][i] += in[r][i], i < width. An in_stride of 0 adds one row to all.
  virtual void add(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
                   float* out, std::size_t out_stride) = 0;
  // values[i] *= factor
  virtual void scale(float* values, std::size_t count, float factor) = 0;
  // values[i] = cap · tanh(values[i] / cap)
  virtual void softcap(float* values, std::size_t count, float cap) = 0;
  virtual void route(const RouteJob& job) = 0;
  virtual void experts(const ExpertsJob& job) = 0;
  virtual void rope_kv(const StepTable& step, const RopeKvJob& job) = 0;
  virtual void attention(const StepTable& step, const AttentionJob& job) = 0;
  virtual void block_convolution(const StepTable& step, const BlockConvolutionJob& job) = 0;
  // The mixers of recurrent layers: see ConvolutionJob, DeltaRuleJob.
  virtual void convolution(const StepTable& step, const ConvolutionJob& job) = 0;
  virtual void delta_rule(const StepTable& step, const DeltaRuleJob& job) = 0;
  // Per row and head: out = rms_norm(in) · silu(gate). in, out: [rows][heads · width], out may be
  // in.
  virtual void gated_rms_norm(const float* in, const float* gate, std::size_t gate_stride,
                              std::uint32_t rows, std::uint32_t heads, std::uint32_t width,
                              NormWeights norm, float* out) = 0;
  // inout[r] *= sigmoid(gate[r]); inout: [rows][width].
  virtual void sigmoid_mul(const float* gate, std::size_t gate_stride, std::uint32_t rows,
                           std::uint32_t width, float* inout) = 0;
  // inout[r][i] *= sigmoid(gate[r]): one gate for a whole row.
  virtual void sigmoid_scale(const float* gate, std::uint32_t rows, std::uint32_t width,
                             float* inout) = 0;
  // out[r] = a[r] · b[r]; out may be either.
  virtual void multiply(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                        std::uint32_t rows, std::uint32_t width, float* out,
                        std::size_t out_stride) = 0;
  // out[r][i] = stream[r][i], i < width: keeps the residual stream of a tapped layer for a draft.
  virtual void capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                           std::uint32_t width, float* out, std::size_t out_stride) = 0;
  // out[r] = index of the largest of logits[r][0 … count), lowest index among equals; `excluded`
  // (or a value >= count) is never chosen. Reads [rows][stride].
  virtual void argmax(const float* logits, std::uint32_t rows, std::size_t stride,
                      std::uint32_t count, std::uint32_t excluded, std::uint32_t* out) = 0;
  // logprob[r] = logits[r][ids[r]] − ln Σ exp(logits[r][0 … count)).
  virtual void log_probabilities(const float* logits, std::uint32_t rows, std::size_t stride,
                                 std::uint32_t count, const std::uint32_t* ids,
                                 double* logprob) = 0;

  // Of one row: the largest value of each group of kLogitGroup, and Σ exp((value − shift) · scale)
  // of each; exp((value − shift) · scale) of each value (in place is allowed). NaN is never
  // largest.
  virtual void group_maxima(const float* values, std::uint32_t count, float* maxima) = 0;
  virtual void group_weights(const float* values, std::uint32_t count, float shift, float scale,
                             float* sums) = 0;
  virtual void weights(const float* values, std::uint32_t count, float shift, float scale,
                       float* out) = 0;
};

inline PassWatch::PassWatch(Device& device, const std::atomic<bool>* cancel)
    : device_(device), cancel_(cancel) {
  device_.watch(cancel);
}
inline PassWatch::~PassWatch() { device_.watch(nullptr); }
inline bool PassWatch::cancelled() const {
  return device_.given_up() || (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed));
}

}  // namespace drafthouse
