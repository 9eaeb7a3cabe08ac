#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace drafthouse::reference {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// One row of a packed tile.
struct ActRow {
  const std::byte* tile;
  std::uint32_t rows;  // of the tile
  std::uint32_t row;

  const std::byte* unit(std::size_t u) const { return tile + (u * rows + row) * 4; }
  float f32(std::size_t k) const { return load<float>(unit(k)); }
  float bf16(std::size_t k) const {
    return bf16_to_float(load<std::uint16_t>(unit(k / 2) + k % 2 * 2));
  }
  std::int32_t code(std::size_t g, std::size_t i) const {
    return load<std::int8_t>(unit(g * 10 + i / 4) + i % 4);
  }
  float scale(std::size_t g) const { return load<float>(unit(g * 10 + 8)); }
  std::int32_t sum(std::size_t g) const { return load<std::int32_t>(unit(g * 10 + 9)); }
};

// One output of a column block.
struct WeightColumn {
  Dtype kind;
  const std::byte* block;
  std::uint32_t o;

  std::size_t pair_bytes() const { return packed_block_bytes(kind, kInputPadding); }
  std::size_t codes_bytes() const { return kind == Dtype::q8_0 ? 512 : 256; }
  std::size_t codes_at() const { return kind == Dtype::q4_1 ? 128 : 64; }
  const std::byte* pair(std::size_t g) const { return block + g / 2 * pair_bytes(); }

  // The stored code: −128 … 127 of q8_0, −8 … 7 of q4_0, 0 … 15 of q4_1.
  std::int32_t code(std::size_t g, std::size_t i) const {
    const std::byte* codes = pair(g) + codes_at() + g % 2 * codes_bytes();
    const std::size_t quad = i / 4;
    if (kind == Dtype::q8_0) {
      return static_cast<std::int32_t>(codes[quad * 64 + o * 4 + i % 4]) - 128;
    }
    const auto byte = static_cast<std::int32_t>(codes[quad / 2 * 64 + o * 4 + i % 4]);
    const std::int32_t code = quad % 2 == 0 ? byte & 15 : byte >> 4;
    return kind == Dtype::q4_0 ? code - 8 : code;
  }
  float scale(std::size_t g) const {
    return half_to_float(load<std::uint16_t>(pair(g) + g % 2 * 32 + o * 2));
  }
  float minimum(std::size_t g) const {
    return half_to_float(load<std::uint16_t>(pair(g) + 64 + g % 2 * 32 + o * 2));
  }
  float value(std::size_t k) const {
    switch (kind) {
      case Dtype::f32: return load<float>(block + (k * kBlockOutputs + o) * 4);
      case Dtype::f16:
        return half_to_float(load<std::uint16_t>(block + (k * kBlockOutputs + o) * 2));
      case Dtype::bf16:
        return bf16_to_float(
            load<std::uint16_t>(block + (k / 2 * kBlockOutputs + o) * 4 + k % 2 * 2));
      default: break;
    }
    const std::size_t g = k / kGroupInputs;
    const float product = scale(g) * static_cast<float>(code(g, k % kGroupInputs));
    return kind == Dtype::q4_1 ? product + minimum(g) : product;
  }
};

float dot_int8(const WeightColumn& w, const ActRow& x, std::uint32_t k_end) {
  float acc = 0.0f;
  for (std::size_t g = 0; g < k_end / kGroupInputs; ++g) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < kGroupInputs; ++i) sum += w.code(g, i) * x.code(g, i);
    acc = std::fma(static_cast<float>(sum), w.scale(g) * x.scale(g), acc);
    if (w.kind == Dtype::q4_1) {
      acc = std::fma(w.minimum(g), x.scale(g) * static_cast<float>(x.sum(g)), acc);
    }
  }
  return acc;
}

float dot(const WeightColumn& w, ActKind act, const ActRow& x, std::uint32_t k_end) {
  if (act == ActKind::int8) return dot_int8(w, x, k_end);
  float acc = 0.0f;
  for (std::size_t k = 0; k < k_end; ++k) {
    acc = std::fma(act == ActKind::bf16 ? x.bf16(k) : x.f32(k), w.value(k), acc);
  }
  return acc;
}

}  // namespace

void matmul(const MatmulJob& job) {
  const PackedMatrix& weights = job.weights;
  const std::size_t block_bytes = packed_block_bytes(weights.kind, weights.inputs);
  for (std::uint32_t row = 0; row < job.rows; ++row) {
    const std::uint32_t tile = row / kTileRows;
    const std::uint32_t rows_left = job.rows - tile * kTileRows;
    const ActRow x{job.x + tile * act_tile_bytes(job.act, weights.inputs),
                   rows_left < kTileRows ? rows_left : kTileRows, row % kTileRows};
    for (std::uint32_t o = job.block_begin * kBlockOutputs;
         o < job.block_end * kBlockOutputs && o < weights.outputs; ++o) {
      const WeightColumn w{weights.kind, weights.data + o / kBlockOutputs * block_bytes,
                           o % kBlockOutputs};
      float& out = job.out[row * job.out_stride + o];
      const float sum = dot(w, job.act, x, padded_inputs(weights.inputs));
      out = job.accumulate ? out + sum : sum;
    }
  }
}

}  // namespace drafthouse::reference
