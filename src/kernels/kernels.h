#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/packed.h"

namespace drafthouse {

// Positions in one page of attention state.
inline constexpr std::uint32_t kPagePositions = 64;
// Query vectors that attend_page handles at once.
inline constexpr std::uint32_t kQueryTile = 16;
// Neighbouring ids that a draw takes together (sampling/draw.h).
inline constexpr std::uint32_t kLogitGroup = 64;

// How keys and values are stored. Rows of a page, per layer and key/value head (head_dim is even):
//   bf16  K [head_dim/2][64 positions][2], V [32 position pairs][head_dim][2]
//   f32   K [head_dim][64 positions],      V [64 positions][head_dim]
enum class KvKind : std::uint8_t { bf16, f32 };

constexpr std::size_t kv_bytes(KvKind kind) { return kind == KvKind::bf16 ? 2 : 4; }

// out[r][o] = Σ_k x[r][k] · w[o][k], or out[r][o] += that sum, for o in the given column blocks.
// One order over k per output: ascending, whatever `rows` is.
//   bf16 weights, bf16 inputs: fp32 sums of k, k+1 pairs in one accumulator
//   int8 inputs: exact integer sums per group of 32; then, groups ascending,
//     acc = fma(float(sum), scale_w · scale_x, acc), and for q4_1 also
//     acc = fma(min_w, scale_x · float(sum of x codes), acc). Bit-equal on every ISA.
//   f32 inputs: acc = fma(x, w, acc) with w the float value of the stored weight
struct MatmulJob {
  PackedMatrix weights;
  std::uint32_t block_begin = 0;
  std::uint32_t block_end = 0;
  ActKind act = ActKind::bf16;
  const std::byte* x = nullptr;  // packed tiles
  std::uint32_t rows = 0;        // any number; tiles of kTileRows, the last one smaller
  float* out = nullptr;
  std::size_t out_stride = 0;  // floats between rows of out
  bool accumulate = false;
};

// One page for up to kQueryTile query vectors of one key/value head. Running softmax:
// per query q, over the page's visible slots [first[q], last[q]): s = scale · q·k, then
//   m' = max(m, max s);  c = exp(m − m');  p = exp(s − m');  l = l·c + Σp;  acc = acc·c + Σ p·v
// A query without a visible slot in the page is left untouched, bit for bit. Start with m = −inf,
// l = 0, acc = 0. For bf16 pages queries are given as bf16 and p is rounded to bf16 for Σ p·v
// (l sums the unrounded p).
struct AttendPageJob {
  KvKind kind = KvKind::bf16;
  std::uint32_t head_dim = 0;  // a multiple of kHeadDimStep, at most kHeadDimMax
  std::uint32_t queries = 0;   // 1 … kQueryTile
  const void* q = nullptr;     // [queries][head_dim], bf16 bits or float, by kind
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::uint8_t* first = nullptr;  // [queries]
  const std::uint8_t* last = nullptr;   // [queries], <= 64
  float scale = 1.0f;
  float* m = nullptr;    // [queries]
  float* l = nullptr;    // [queries]
  float* acc = nullptr;  // [queries][head_dim]
};

// A depthwise causal convolution over positions, one row: per channel c, taps ascending (the last
// one is the row itself), acc = fma(taps[j][c], weights[j][c], acc) from 0; then silu(acc) where
// asked.
struct ShortConvJob {
  std::uint32_t kernel = 0;  // taps, 1 … kConvTapsMax
  std::uint32_t channels = 0;
  const float* const* taps = nullptr;  // [kernel] rows of channels; null before position 0: zeros
  const float* const* weights = nullptr;  // [kernel] rows of channels
  bool silu = false;
  float* out = nullptr;
};
inline constexpr std::uint32_t kConvTapsMax = 8;

// The open chunk of one value head's gated delta rule: what happened since the chunk began, at the
// slots of its positions. `state` is the state S at the chunk's beginning and is never written.
struct DeltaChunk {
  std::uint32_t key_dim = 0;  // multiples of 16, at most kHeadDimMax
  std::uint32_t value_dim = 0;
  const float* state = nullptr;  // [key_dim][value_dim]; null: zeros
  const float* keys = nullptr;   // [kPagePositions][key_dim], normed
  float* updates = nullptr;      // u, [kPagePositions][value_dim]
  float* decays = nullptr;       // G: sum of the log decays since the chunk began, [kPagePositions]
};

// Rows at slots first … first + rows − 1 of a chunk whose keys are in it already. Row t, with j
// over the earlier slots in ascending order and G_t = G_{t−1} + decay_t:
//   u_t = beta_t (v_t − (e^{G_t} Sᵀk_t + Σ_{j<t} e^{G_t − G_j} (k_j·k_t) u_j))
//   o_t = e^{G_t} Sᵀq_t + (Σ_{j<t} e^{G_t − G_j} (k_j·q_t) u_j + (k_t·q_t) u_t)
// u_t and G_t go to slot t. Every sum has one order, whatever `rows` is. (Gated delta rule, arXiv
// 2412.06464; the state as it was at the chunk's beginning and what has been added since, instead
// of a state that every row rewrites.)
struct DeltaRowsJob {
  DeltaChunk chunk = {};
  std::uint32_t first = 0;
  std::uint32_t rows = 0;  // first + rows <= kPagePositions
  const float* q = nullptr;
  std::size_t q_stride = 0;  // floats between rows, as below
  const float* v = nullptr;
  std::size_t v_stride = 0;
  const float* decay = nullptr;  // log decay, <= 0
  const float* beta = nullptr;
  std::size_t gate_stride = 0;  // of decay and beta
  float* out = nullptr;
  std::size_t out_stride = 0;
};

// The operations of one CPU path. Pure functions on one thread's share of the work: they never
// allocate, lock or log. Widths need not be multiples of the vector length.
struct Kernels {
  // Rounds `rows` (1 … kTileRows) rows of `inputs` floats into one tile.
  void (*pack_activations)(ActKind kind, const float* in, std::size_t in_stride, std::uint32_t rows,
                           std::uint32_t inputs, std::byte* tile);
  void (*matmul)(const MatmulJob& job);

  // out[i] = in[i] · rsqrt(mean(in²) + eps) · gain[i]; out == in is allowed.
  void (*rms_norm)(float* out, const float* in, const float* gain, std::uint32_t width, float eps);
  // out[i] = silu(gate[i]) · up[i]
  void (*silu_mul)(float* out, const float* gate, const float* up, std::uint32_t width);
  // out[i] = gelu(gate[i]) · up[i], the tanh form: gelu(x) = ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
  void (*gelu_mul)(float* out, const float* gate, const float* up, std::uint32_t width);
  // out[i] = (u + 1) · g / (1 + e^(−alpha g)), g = min(gate[i], limit), u = clamp(up[i], ±limit).
  void (*clamped_silu_mul)(float* out, const float* gate, const float* up, std::uint32_t width,
                           float alpha, float limit);
  // values[i] = cap · tanh(values[i] / cap), within 3e-7 · cap.
  void (*softcap)(float* values, std::uint32_t count, float cap);
  // values[i] = e^values[i] / Σ e^values, in a fixed order.
  void (*softmax)(float* values, std::uint32_t count);
  // out[i] = in[i] · rsqrt(mean(in²) + eps) · gain[i] · silu(gate[i]); out may be in or gate.
  void (*gated_rms_norm)(float* out, const float* in, const float* gain, const float* gate,
                         std::uint32_t width, float eps);
  // out[i] = in[i] · scale · rsqrt(Σ in² + eps); out == in is allowed.
  void (*l2_norm)(float* out, const float* in, std::uint32_t width, float eps, float scale);
  // out[i] = sigmoid(gate[i]) · in[i]; out may be either.
  void (*sigmoid_mul)(float* out, const float* gate, const float* in, std::uint32_t width);
  // out[i] = a[i] · b[i]; out may be either.
  void (*multiply)(float* out, const float* a, const float* b, std::uint32_t width);
  void (*short_conv)(const ShortConvJob& job);
  // decay[h] = −e^{a_log[h]} · softplus(a[h] + dt_bias[h]), beta[h] = sigmoid(b[h]); decay may be
  // a, beta may be b.
  void (*delta_gates)(float* decay, float* beta, const float* a, const float* b, const float* a_log,
                      const float* dt_bias, std::uint32_t heads);
  void (*delta_rows)(const DeltaRowsJob& job);
  // The state after a full chunk: next = e^{G_63} S + Σ_j e^{G_63 − G_j} k_j u_jᵀ, j ascending.
  // `next` must not be the chunk's state.
  void (*delta_fold)(const DeltaChunk& chunk, float* next);
  // Half-split rotation in place: pair (i, i + half) turned by cos[i], sin[i].
  void (*rope)(float* head, const float* cos, const float* sin, std::uint32_t half);
  // Rounds `count` floats to bfloat16 bits.
  void (*to_bf16)(std::uint16_t* out, const float* in, std::uint32_t count);
  // Writes one position's key and value of one head into slot `slot` of a page.
  void (*write_kv)(KvKind kind, std::uint32_t head_dim, std::uint32_t slot, const float* k,
                   const float* v, std::byte* k_page, std::byte* v_page);
  void (*attend_page)(const AttendPageJob& job);
  // Joins a later span into an earlier one: (m, l, acc) ← both, weighted by exp of their maxima.
  // A span that saw nothing (l = 0) changes nothing.
  void (*merge_spans)(float* m, float* l, float* acc, float m2, float l2, const float* acc2,
                      std::uint32_t head_dim);
  // Index of the largest value, the lowest index among equals; NaN is never chosen (0 if all are).
  std::uint32_t (*argmax)(const float* values, std::uint32_t count);
  // ln Σ exp(values[i]), in a fixed order.
  double (*log_sum_exp)(const float* values, std::uint32_t count);
  // Of each group of kLogitGroup values (the last may be shorter): the largest, NaN left out (-inf
  // when there is none), and Σ exp((value − shift) · scale) in a fixed order.
  void (*group_maxima)(const float* values, std::uint32_t count, float* maxima);
  void (*group_weights)(const float* values, std::uint32_t count, float shift, float scale,
                        float* sums);
  // out[i] = exp((values[i] − shift) · scale); out == values is allowed.
  void (*weights)(const float* values, std::uint32_t count, float shift, float scale, float* out);

  // Floating-point operations done by a register-only loop of this path's widest instruction for
  // bf16 (or fp32) and int8 dot products: the peak that benches divide by. Returns operations.
  std::uint64_t (*peak_float)(std::uint64_t iterations);
  std::uint64_t (*peak_int8)(std::uint64_t iterations);
  // Reads `bytes` (a multiple of 256, 64-byte aligned) and returns a sum, for the bandwidth probe.
  std::uint64_t (*read_bytes)(const std::byte* data, std::size_t bytes);
};

// The kernels of a built set. Requires cpu_has(isa) before any is called.
const Kernels& kernels_for(Isa isa);

// The meaning of every operation, in the plainest C++.
const Kernels& reference_kernels();

// cos and sin of position · inv_freq[i], i < half, in double rounded once to float; own polynomial.
void rope_angles(std::uint32_t position, const double* inv_freq, std::uint32_t half, float* cos,
                 float* sin);

}  // namespace drafthouse
