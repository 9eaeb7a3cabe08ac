#include "kernels/packed.h"

#include <cstring>

#include "tensor/half.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kOutputs = kBlockOutputs;
constexpr std::uint32_t kQuads = kGroupInputs / 4;
constexpr std::size_t kQuadBytes = kOutputs * 4;

// A quantised row is read by groups; all kinds start a group with a half scale.
struct GroupLayout {
  std::uint32_t file_bytes;   // of one group of one row in the file
  std::uint32_t codes_at;     // where the codes begin in it
  std::size_t packed_at;      // where the codes begin in a packed pair
  std::size_t codes_bytes;    // packed codes of one group of a block
  std::size_t pair_bytes;     // packed bytes of a pair of groups of a block
};

constexpr GroupLayout group_layout(Dtype kind) {
  switch (kind) {
    case Dtype::q8_0: return {34, 2, 64, kQuads * kQuadBytes, 1088};
    case Dtype::q4_0: return {18, 2, 64, kQuads / 2 * kQuadBytes, 576};
    default: return {20, 4, 128, kQuads / 2 * kQuadBytes, 640};
  }
}

// Places within a packed pair.
std::size_t scale_at(std::uint32_t half) { return half * kOutputs * 2; }
std::size_t minimum_at(std::uint32_t half) { return (2 + half) * kOutputs * 2; }
std::size_t codes_at(const GroupLayout& layout, std::uint32_t half) {
  return layout.packed_at + half * layout.codes_bytes;
}

// Interleaves units of `Unit` bytes: unit u of output o goes to (u × 16 + o).
template <class Unit>
void pack_plain(std::uint32_t units, std::uint32_t padded_units,
                const std::byte* const rows[kOutputs], std::byte* block) {
  // 16 units of every row at a time keep both sides within a few cache lines.
  constexpr std::uint32_t kStep = 16;
  static constexpr std::byte kZeros[kStep * sizeof(Unit)] = {};
  for (std::uint32_t u = 0; u < padded_units; u += kStep) {
    Unit in[kOutputs][kStep];
    const std::uint32_t count = u >= units ? 0 : (units - u < kStep ? units - u : kStep);
    for (std::uint32_t o = 0; o < kOutputs; ++o) {
      const std::byte* from = rows[o] != nullptr ? rows[o] + u * sizeof(Unit) : kZeros;
      if (count == kStep) {
        std::memcpy(in[o], from, sizeof in[o]);
      } else {
        std::memset(in[o], 0, sizeof in[o]);
        std::memcpy(in[o], from, count * sizeof(Unit));
      }
    }
    Unit out[kStep][kOutputs];
    for (std::uint32_t i = 0; i < kStep; ++i) {
      for (std::uint32_t o = 0; o < kOutputs; ++o) out[i][o] = in[o][i];
    }
    std::memcpy(block + static_cast<std::size_t>(u) * kOutputs * sizeof(Unit), out, sizeof out);
  }
}

// bf16 with an odd number of inputs ends in half a unit, which the plain path would not see.
void pack_bf16(std::uint32_t inputs, const std::byte* const rows[kOutputs], std::byte* block) {
  pack_plain<std::uint32_t>(inputs / 2, padded_inputs(inputs) / 2, rows, block);
  if (inputs % 2 == 0) return;
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    if (rows[o] == nullptr) continue;
    std::memcpy(block + (static_cast<std::size_t>(inputs / 2) * kOutputs + o) * 4,
                rows[o] + static_cast<std::size_t>(inputs - 1) * 2, 2);
  }
}

// The quads of one group of every output: 8 units of 4 codes, one code a byte.
using Quads = std::uint32_t[kOutputs][kQuads];

void load_q8_0(const std::byte* codes, std::uint32_t quads[kQuads]) {
  std::memcpy(quads, codes, kGroupInputs);
  for (std::uint32_t i = 0; i < kQuads; ++i) quads[i] ^= 0x80808080u;  // value + 128
}

// The file keeps codes i and i + 16 in byte i.
void load_q4(const std::byte* codes, std::uint32_t quads[kQuads]) {
  std::uint32_t words[4];
  std::memcpy(words, codes, sizeof words);
  for (std::uint32_t i = 0; i < 4; ++i) {
    quads[i] = words[i] & 0x0f0f0f0fu;
    quads[i + 4] = (words[i] >> 4) & 0x0f0f0f0fu;
  }
}

void store_q8_0(const Quads& quads, std::byte* out) {
  std::uint32_t units[kQuads][kOutputs];
  for (std::uint32_t i = 0; i < kQuads; ++i) {
    for (std::uint32_t o = 0; o < kOutputs; ++o) units[i][o] = quads[o][i];
  }
  std::memcpy(out, units, sizeof units);
}

void store_q4(const Quads& quads, std::byte* out) {
  std::uint32_t units[kQuads / 2][kOutputs];
  for (std::uint32_t i = 0; i < kQuads / 2; ++i) {
    for (std::uint32_t o = 0; o < kOutputs; ++o) {
      units[i][o] = quads[o][2 * i] | (quads[o][2 * i + 1] << 4);
    }
  }
  std::memcpy(out, units, sizeof units);
}

void pack_group(Dtype kind, std::uint32_t group, const std::byte* const rows[kOutputs],
                std::byte* pair) {
  const GroupLayout layout = group_layout(kind);
  // What a missing row multiplies to zero: a zero scale does it, and the codes mean zero as well.
  const std::uint32_t zero_quad = kind == Dtype::q8_0   ? 0x80808080u
                                  : kind == Dtype::q4_0 ? 0x08080808u
                                                        : 0u;
  Quads quads;
  std::uint16_t scales[kOutputs] = {};
  std::uint16_t minima[kOutputs] = {};
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    if (rows[o] == nullptr) {
      for (std::uint32_t& quad : quads[o]) quad = zero_quad;
      continue;
    }
    const std::byte* from = rows[o] + static_cast<std::size_t>(group) * layout.file_bytes;
    std::memcpy(&scales[o], from, 2);
    if (kind == Dtype::q4_1) std::memcpy(&minima[o], from + 2, 2);
    if (kind == Dtype::q8_0) {
      load_q8_0(from + layout.codes_at, quads[o]);
    } else {
      load_q4(from + layout.codes_at, quads[o]);
    }
  }
  const std::uint32_t half = group % 2;
  if (kind == Dtype::q8_0) {
    store_q8_0(quads, pair + codes_at(layout, half));
  } else {
    store_q4(quads, pair + codes_at(layout, half));
  }
  std::memcpy(pair + scale_at(half), scales, sizeof scales);
  if (kind == Dtype::q4_1) std::memcpy(pair + minimum_at(half), minima, sizeof minima);
}

void pack_groups(Dtype kind, std::uint32_t inputs, const std::byte* const rows[kOutputs],
                 std::byte* block) {
  static constexpr const std::byte* kNoRows[kOutputs] = {};
  const std::size_t pair_bytes = group_layout(kind).pair_bytes;
  const std::uint32_t groups = inputs / kGroupInputs;
  for (std::uint32_t g = 0; g < padded_inputs(inputs) / kGroupInputs; ++g) {
    pack_group(kind, g, g < groups ? rows : kNoRows, block + g / 2 * pair_bytes);
  }
}

float half_at(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, 2);
  return half_to_float(bits);
}

void unpack_groups(Dtype kind, const std::byte* block, std::uint32_t o, std::uint32_t inputs,
                   float* out) {
  const GroupLayout layout = group_layout(kind);
  for (std::uint32_t k = 0; k < inputs; ++k) {
    const std::byte* pair = block + k / kInputPadding * layout.pair_bytes;
    const std::uint32_t half = k / kGroupInputs % 2;
    const std::uint32_t quad = k % kGroupInputs / 4;
    const std::byte* codes = pair + codes_at(layout, half);
    const float scale = half_at(pair + scale_at(half) + o * 2);
    if (kind == Dtype::q8_0) {
      const int code = static_cast<int>(codes[quad * kQuadBytes + o * 4 + k % 4]) - 128;
      out[k] = scale * static_cast<float>(code);
      continue;
    }
    const unsigned byte = static_cast<unsigned>(codes[quad / 2 * kQuadBytes + o * 4 + k % 4]);
    const int code = static_cast<int>(quad % 2 == 0 ? byte & 15u : byte >> 4);
    if (kind == Dtype::q4_0) {
      out[k] = scale * static_cast<float>(code - 8);
    } else {
      // The product is exact, so this rounds once.
      const float minimum = half_at(pair + minimum_at(half) + o * 2);
      out[k] = scale * static_cast<float>(code) + minimum;
    }
  }
}

}  // namespace

void pack_block(Dtype kind, std::uint32_t inputs, const std::byte* const rows[kBlockOutputs],
                std::byte* block) {
  switch (kind) {
    case Dtype::f32:
      pack_plain<std::uint32_t>(inputs, padded_inputs(inputs), rows, block);
      return;
    case Dtype::f16: pack_plain<std::uint16_t>(inputs, padded_inputs(inputs), rows, block); return;
    case Dtype::bf16: pack_bf16(inputs, rows, block); return;
    case Dtype::q8_0:
    case Dtype::q4_0:
    case Dtype::q4_1: pack_groups(kind, inputs, rows, block); return;
    default: return;
  }
}

void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* out) {
  const std::uint32_t o = output % kBlockOutputs;
  const std::byte* block =
      matrix.data + output / kBlockOutputs * packed_block_bytes(matrix.kind, matrix.inputs);
  switch (matrix.kind) {
    case Dtype::f32:
      for (std::size_t k = 0; k < matrix.inputs; ++k) {
        std::memcpy(&out[k], block + (k * kOutputs + o) * 4, 4);
      }
      return;
    case Dtype::f16:
      for (std::size_t k = 0; k < matrix.inputs; ++k) {
        out[k] = half_at(block + (k * kOutputs + o) * 2);
      }
      return;
    case Dtype::bf16:
      for (std::size_t k = 0; k < matrix.inputs; ++k) {
        std::uint16_t bits;
        std::memcpy(&bits, block + (k / 2 * kOutputs + o) * 4 + k % 2 * 2, 2);
        out[k] = bf16_to_float(bits);
      }
      return;
    case Dtype::q8_0:
    case Dtype::q4_0:
    case Dtype::q4_1: unpack_groups(matrix.kind, block, o, matrix.inputs, out); return;
    default: return;
  }
}

}  // namespace drafthouse
