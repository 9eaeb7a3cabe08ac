#include "kernels/packed.h"

#include <cstring>
#include <vector>

#include "kernels/packed_column.h"
#include "kernels/reordered.h"
#include "kernels/stored_group.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kOutputs = kBlockOutputs;
constexpr std::uint32_t kQuads = kGroupInputs / 4;

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

// The codes of one group of every output: 8 quads of 4 codes, one code a byte.
using Quads = std::uint32_t[kOutputs][kQuads];

void store_codes(std::uint32_t bits, const Quads& quads, std::byte* out) {
  const std::uint32_t nibbles = bits == 8 ? 0xffffffffu : 0x0f0f0f0fu;
  std::uint32_t units[kQuads][kOutputs] = {};
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    for (std::uint32_t i = 0; i < kQuads; ++i) {
      const std::uint32_t low = quads[o][i] & nibbles;
      const std::uint32_t upper = quads[o][i] >> 4 & 0x03030303u;
      if (bits == 8) {
        units[i][o] = low;
        continue;
      }
      units[i / 2][o] |= low << i % 2 * 4;
      if (bits == 5) units[4][o] |= upper << i;
      if (bits == 6) units[4 + i / 4][o] |= upper << i % 4 * 2;
    }
  }
  std::memcpy(out, units, code_bytes(bits));
}

// Values of 16 outputs, side by side in the header.
template <class Value>
void store_values(const StoredGroup (&groups)[kOutputs], Value StoredGroup::* member,
                  std::byte* out) {
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    std::memcpy(out + o * sizeof(Value), &(groups[o].*member), sizeof(Value));
  }
}
void store_subs(const StoredGroup (&groups)[kOutputs], std::int8_t (StoredGroup::*member)[2],
                std::uint32_t sub, std::byte* out) {
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    out[o] = static_cast<std::byte>((groups[o].*member)[sub]);
  }
}

void store_scales(ScaleForm form, const StoredGroup (&groups)[kOutputs], std::uint32_t half,
                  std::byte* pair) {
  switch (form) {
    case ScaleForm::half_min:
    case ScaleForm::bf16_32:
      store_values(groups, &StoredGroup::minimum16, pair + 64 + half * 32);
      [[fallthrough]];
    case ScaleForm::half: store_values(groups, &StoredGroup::scale16, pair + half * 32); return;
    case ScaleForm::f32_min:
      store_values(groups, &StoredGroup::minimum, pair + 128 + half * 64);
      [[fallthrough]];
    case ScaleForm::f32: store_values(groups, &StoredGroup::scale, pair + half * 64); return;
    default: break;
  }
  // What both halves share is the same in both; padding, which comes second, must not erase it.
  if (half == 0) {
    store_values(groups, &StoredGroup::scale16, pair);
    if (form != ScaleForm::k16) store_values(groups, &StoredGroup::minimum16, pair + 32);
  }
  switch (form) {
    case ScaleForm::k32:
      store_subs(groups, &StoredGroup::sub_scale, 0, pair + 64 + half * 16);
      store_subs(groups, &StoredGroup::sub_minimum, 0, pair + 96 + half * 16);
      return;
    case ScaleForm::k16:
    case ScaleForm::k16_min:
      for (std::uint32_t sub = 0; sub < 2; ++sub) {
        const std::uint32_t at = (half * 2 + sub) * 16;
        if (form == ScaleForm::k16) {
          store_subs(groups, &StoredGroup::sub_scale, sub, pair + 32 + at);
          continue;
        }
        store_subs(groups, &StoredGroup::sub_scale, sub, pair + 64 + at);
        store_subs(groups, &StoredGroup::sub_minimum, sub, pair + 128 + at);
      }
      return;
    default: return;
  }
}

// `order`: see pack_reordered(); null: as in the file.
void pack_groups(const RowFormat& from, std::uint32_t inputs, const std::byte* const rows[kOutputs],
                 const std::uint32_t* order, std::byte* block) {
  const GroupedKind kind = grouped_kind(packed_kind(from));
  const std::uint32_t groups = inputs / kGroupInputs;
  const std::uint32_t padded = padded_inputs(inputs) / kGroupInputs;
  // Absent outputs and inputs multiply to zero: codes that mean zero, and scales of zero.
  const std::uint32_t zero_quad = static_cast<std::uint32_t>(kind.offset) * 0x01010101u;
  for (std::uint32_t g = 0; g < padded; ++g) {
    StoredGroup of_outputs[kOutputs];
    Quads quads;
    for (std::uint32_t o = 0; o < kOutputs; ++o) {
      if (g < groups && rows[o] != nullptr) {
        of_outputs[o] = read_group(from, inputs, rows[o], order == nullptr ? g : order[g]);
        std::memcpy(quads[o], of_outputs[o].codes, kGroupInputs);
      } else {
        for (std::uint32_t& quad : quads[o]) quad = zero_quad;
      }
    }
    std::byte* pair = block + g / 2 * pair_bytes(kind);
    const std::size_t header = header_bytes(kind.scales);
    if (g % 2 == 0) std::memset(pair, 0, header);
    store_scales(kind.scales, of_outputs, g % 2, pair);
    store_codes(kind.bits, quads, pair + header + g % 2 * code_bytes(kind.bits));
  }
}

// Formats that become plain numbers first.
void pack_numbers(const RowFormat& from, std::uint32_t inputs,
                  const std::byte* const rows[kOutputs], std::byte* block) {
  std::vector<float> numbers(std::size_t{inputs} * kOutputs);
  const std::byte* of_numbers[kOutputs] = {};
  for (std::uint32_t o = 0; o < kOutputs; ++o) {
    if (rows[o] == nullptr) continue;
    float* out = numbers.data() + std::size_t{o} * inputs;
    read_numbers(from, inputs, rows[o], out);
    of_numbers[o] = reinterpret_cast<const std::byte*>(out);
  }
  pack_plain<std::uint32_t>(inputs, padded_inputs(inputs), of_numbers, block);
}

}  // namespace

void pack_block(const RowFormat& from, std::uint32_t inputs,
                const std::byte* const rows[kBlockOutputs], std::byte* block) {
  switch (from.dtype) {
    case Dtype::f32: pack_plain<std::uint32_t>(inputs, padded_inputs(inputs), rows, block); return;
    case Dtype::f16: pack_plain<std::uint16_t>(inputs, padded_inputs(inputs), rows, block); return;
    case Dtype::bf16: pack_bf16(inputs, rows, block); return;
    case Dtype::f8_blocks: pack_numbers(from, inputs, rows, block); return;
    default: pack_groups(from, inputs, rows, nullptr, block); return;
  }
}

void pack_reordered(const RowFormat& from, std::uint32_t inputs,
                    const std::byte* const rows[kBlockOutputs], const std::uint32_t* order,
                    std::byte* block) {
  pack_groups(from, inputs, rows, order, block);
}

bool can_reorder(const RowFormat& from, std::uint32_t unit) {
  const Dtype kind = packed_kind(from);
  if (!is_grouped(kind)) return false;
  switch (grouped_kind(kind).scales) {
    case ScaleForm::half:
    case ScaleForm::half_min:
    case ScaleForm::bf16_32:
    case ScaleForm::f32:
    case ScaleForm::f32_min: return unit % kGroupInputs == 0;
    default: return unit % kInputPadding == 0;
  }
}

void unpack_row(const PackedMatrix& matrix, std::uint32_t output, float* out) {
  const PackedColumn column{
      matrix.kind,
      matrix.data + output / kBlockOutputs * packed_block_bytes(matrix.kind, matrix.inputs),
      output % kBlockOutputs};
  for (std::size_t k = 0; k < matrix.inputs; ++k) out[k] = column.value(k);
}

}  // namespace drafthouse
