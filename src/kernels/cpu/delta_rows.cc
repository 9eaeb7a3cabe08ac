#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"
#include "tensor/head_dim.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kTile = 4;  // rows that share one read of the state

// out[r] = Sᵀ x[r] for `rows` vectors and `blocks` blocks of 16 columns from `column` on. Each
// output has one accumulator over the state's rows, ascending.
template <std::uint32_t rows, std::uint32_t blocks>
inline void read_state(const DeltaChunk& chunk, std::uint32_t column, const float* const* x,
                       float* const* out) {
  Vec acc[rows][blocks];
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) acc[r][b] = splat(0.0f);
  }
  const float* at = chunk.state + column;
  for (std::uint32_t i = 0; i < chunk.key_dim; ++i, at += chunk.value_dim) {
    Vec s[blocks];
    for (std::uint32_t b = 0; b < blocks; ++b) s[b] = load(at + b * kLanes);
    for (std::uint32_t r = 0; r < rows; ++r) {
      const Vec factor = splat(x[r][i]);
      for (std::uint32_t b = 0; b < blocks; ++b) acc[r][b] = fma(s[b], factor, acc[r][b]);
    }
  }
  for (std::uint32_t r = 0; r < rows; ++r) {
    for (std::uint32_t b = 0; b < blocks; ++b) store(out[r] + column + b * kLanes, acc[r][b]);
  }
}

template <std::uint32_t rows>
inline void read_state(const DeltaChunk& chunk, const float* const* x, float* const* out) {
  // Enough sums at once to hide the latency of fma, few enough to stay in registers.
  constexpr std::uint32_t kBlocks = rows >= 4 ? 1 : 4 / rows;
  std::uint32_t column = 0;
  for (; column + kBlocks * kLanes <= chunk.value_dim; column += kBlocks * kLanes) {
    read_state<rows, kBlocks>(chunk, column, x, out);
  }
  for (; column < chunk.value_dim; column += kLanes) read_state<rows, 1>(chunk, column, x, out);
}

inline float dot(const float* a, const float* b, std::uint32_t count) {
  Vec acc = splat(0.0f);
  for (std::uint32_t i = 0; i < count; i += kLanes) acc = fma(load(a + i), load(b + i), acc);
  return sum(acc);
}

// One row, after the state has been read for it: from_k = Sᵀk, from_q = Sᵀq.
inline void finish_row(const DeltaRowsJob& job, std::uint32_t row, const float* from_k,
                       const float* from_q) {
  const DeltaChunk& chunk = job.chunk;
  const std::uint32_t slot = job.first + row;
  const float* k = chunk.keys + std::size_t{slot} * chunk.key_dim;
  const float* q = job.q + row * job.q_stride;
  const float* v = job.v + row * job.v_stride;
  float* u = chunk.updates + std::size_t{slot} * chunk.value_dim;
  float* out = job.out + row * job.out_stride;
  const float before = slot == 0 ? 0.0f : chunk.decays[slot - 1];
  const float decay = before + job.decay[row * job.gate_stride];
  chunk.decays[slot] = decay;

  float with_k[kPagePositions];
  float with_q[kPagePositions];
  for (std::uint32_t j = 0; j < slot; ++j) {
    const float* earlier = chunk.keys + std::size_t{j} * chunk.key_dim;
    with_k[j] = dot(earlier, k, chunk.key_dim);
    with_q[j] = dot(earlier, q, chunk.key_dim);
  }
  const Vec zero = splat(0.0f);
  for (std::uint32_t j = 0; j < slot; j += kLanes) {
    const std::uint32_t count = slot - j;
    const Vec weight = exp(sub(splat(decay), load_first(chunk.decays + j, count, splat(decay))));
    store_first(with_k + j, count, mul(weight, load_first(with_k + j, count, zero)));
    store_first(with_q + j, count, mul(weight, load_first(with_q + j, count, zero)));
  }
  const Vec since = exp(splat(decay));
  const Vec beta = splat(job.beta[row * job.gate_stride]);
  const Vec own = splat(dot(k, q, chunk.key_dim));
  for (std::uint32_t d = 0; d < chunk.value_dim; d += kLanes) {
    Vec to_u = zero;
    Vec to_out = zero;
    const float* earlier = chunk.updates + d;
    for (std::uint32_t j = 0; j < slot; ++j, earlier += chunk.value_dim) {
      const Vec update = load(earlier);
      to_u = fma(update, splat(with_k[j]), to_u);
      to_out = fma(update, splat(with_q[j]), to_out);
    }
    const Vec known = fma(since, load(from_k + d), to_u);
    const Vec update = mul(beta, sub(load(v + d), known));
    store(u + d, update);
    store(out + d, fma(since, load(from_q + d), fma(own, update, to_out)));
  }
}

}  // namespace

void delta_rows(const DeltaRowsJob& job) {
  const DeltaChunk& chunk = job.chunk;
  // Sᵀk and Sᵀq of a tile of rows.
  float read[2 * kTile][kHeadDimMax];
  for (std::uint32_t tile = 0; tile < job.rows; tile += kTile) {
    const std::uint32_t rows = job.rows - tile < kTile ? job.rows - tile : kTile;
    const float* x[2 * kTile];
    float* out[2 * kTile];
    for (std::uint32_t r = 0; r < rows; ++r) {
      x[2 * r] = chunk.keys + std::size_t{job.first + tile + r} * chunk.key_dim;
      x[2 * r + 1] = job.q + (tile + r) * job.q_stride;
      out[2 * r] = read[2 * r];
      out[2 * r + 1] = read[2 * r + 1];
    }
    if (chunk.state == nullptr) {
      for (std::uint32_t r = 0; r < 2 * rows; ++r) {
        for (std::uint32_t d = 0; d < chunk.value_dim; d += kLanes) store(read[r] + d, splat(0.0f));
      }
    } else if (rows == kTile) {
      read_state<2 * kTile>(chunk, x, out);
    } else {
      for (std::uint32_t r = 0; r < rows; ++r) read_state<2>(chunk, x + 2 * r, out + 2 * r);
    }
    for (std::uint32_t r = 0; r < rows; ++r) finish_row(job, tile + r, out[2 * r], out[2 * r + 1]);
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
