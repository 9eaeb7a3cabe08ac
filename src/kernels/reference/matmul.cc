#include <cmath>
#include <cstring>

#include "kernels/packed_column.h"
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

// Of half `sub` of a group.
std::int32_t half_product(const PackedColumn& w, const ActRow& x, std::size_t g, std::size_t sub) {
  std::int32_t sum = 0;
  for (std::size_t i = sub * 16; i < sub * 16 + 16; ++i) sum += w.code(g, i) * x.code(g, i);
  return sum;
}
std::int32_t half_sum(const ActRow& x, std::size_t g, std::size_t sub) {
  std::int32_t sum = 0;
  for (std::size_t i = sub * 16; i < sub * 16 + 16; ++i) sum += x.code(g, i);
  return sum;
}

float dot_int8(const PackedColumn& w, const ActRow& x, std::uint32_t k_end) {
  const ScaleForm form = grouped_kind(w.kind).scales;
  const bool halves = subgroups(form) == 2;
  float acc = 0.0f;
  const auto add = [&](std::int32_t sum, float scale) {
    acc = std::fma(static_cast<float>(sum), scale, acc);
  };
  for (std::size_t g = 0; g < k_end / kGroupInputs; ++g) {
    const float x_scale = x.scale(g);
    if (halves) {
      for (std::size_t s = 0; s < 2; ++s) add(half_product(w, x, g, s), w.scale(g, s) * x_scale);
    } else {
      add(half_product(w, x, g, 0) + half_product(w, x, g, 1), w.scale(g, 0) * x_scale);
    }
    if (!has_minimum(form)) continue;
    for (std::size_t s = 0; s < subgroups(form); ++s) {
      const std::int32_t sum = halves ? half_sum(x, g, s) : x.sum(g);
      acc = std::fma(w.minimum(g, s), x_scale * static_cast<float>(sum), acc);
    }
  }
  return acc;
}

float dot(const PackedColumn& w, ActKind act, const ActRow& x, std::uint32_t k_end) {
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
      const PackedColumn w{weights.kind, weights.data + o / kBlockOutputs * block_bytes,
                           o % kBlockOutputs};
      float& out = job.out[row * job.out_stride + o];
      const float sum = dot(w, job.act, x, padded_inputs(weights.inputs));
      out = job.accumulate ? out + sum : sum;
    }
  }
}

}  // namespace drafthouse::reference
