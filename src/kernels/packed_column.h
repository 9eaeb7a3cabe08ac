#pragma once

#include <cstring>

#include "kernels/grouped.h"
#include "kernels/packed.h"
#include "tensor/half.h"

namespace drafthouse {

// One output of a column block, number by number: what packed bytes mean. For kernels/reference and
// for looking at single rows.
struct PackedColumn {
  Dtype kind;
  const std::byte* block;
  std::uint32_t o;  // < kBlockOutputs

  template <class T>
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static float half(const std::byte* from) { return half_to_float(load<std::uint16_t>(from)); }
  static float bf16(const std::byte* from) { return bf16_to_float(load<std::uint16_t>(from)); }

  // Grouped kinds only, as all up to minimum().
  GroupedKind grouped() const { return grouped_kind(kind); }
  const std::byte* pair(std::size_t g) const { return block + g / 2 * pair_bytes(grouped()); }

  // The number that code i (< 32) of group g stands for.
  std::int32_t code(std::size_t g, std::size_t i) const {
    const GroupedKind k = grouped();
    const std::byte* codes = pair(g) + header_bytes(k.scales) + g % 2 * code_bytes(k.bits);
    const std::size_t quad = i / 4;
    const std::size_t at = o * 4 + i % 4;
    if (k.bits == 8) return static_cast<std::int32_t>(codes[quad * 64 + at]) - k.offset;
    const auto both = static_cast<unsigned>(codes[quad / 2 * 64 + at]);
    unsigned code = quad % 2 == 0 ? both & 15u : both >> 4;
    if (k.bits == 5) code |= (static_cast<unsigned>(codes[256 + at]) >> quad & 1u) << 4;
    if (k.bits == 6) {
      const auto upper = static_cast<unsigned>(codes[256 + quad / 4 * 64 + at]);
      code |= (upper >> quad % 4 * 2 & 3u) << 4;
    }
    return static_cast<std::int32_t>(code) - k.offset;
  }
  // Of half `sub` of group g (the same for both when the kind has one per group).
  float scale(std::size_t g, std::size_t sub) const {
    const std::byte* at = pair(g);
    switch (grouped().scales) {
      case ScaleForm::half:
      case ScaleForm::half_min: return half(at + g % 2 * 32 + o * 2);
      case ScaleForm::bf16_64: return bf16(at + o * 2);
      case ScaleForm::bf16_32: return bf16(at + g % 2 * 32 + o * 2);
      case ScaleForm::k32: return half(at + o * 2) * small(at + 64 + g % 2 * 16);
      case ScaleForm::k16: return half(at + o * 2) * small(at + 32 + (g % 2 * 2 + sub) * 16);
      case ScaleForm::k16_min: return half(at + o * 2) * small(at + 64 + (g % 2 * 2 + sub) * 16);
      case ScaleForm::f32:
      case ScaleForm::f32_min: return load<float>(at + g % 2 * 64 + o * 4);
    }
    return 0.0f;
  }
  // Of kinds that have one.
  float minimum(std::size_t g, std::size_t sub) const {
    const std::byte* at = pair(g);
    switch (grouped().scales) {
      case ScaleForm::half_min: return half(at + 64 + g % 2 * 32 + o * 2);
      case ScaleForm::bf16_64: return bf16(at + 32 + o * 2);
      case ScaleForm::bf16_32: return bf16(at + 64 + g % 2 * 32 + o * 2);
      case ScaleForm::k32: return half(at + 32 + o * 2) * small(at + 96 + g % 2 * 16);
      case ScaleForm::k16_min:
        return half(at + 32 + o * 2) * small(at + 128 + (g % 2 * 2 + sub) * 16);
      case ScaleForm::f32_min: return load<float>(at + 128 + g % 2 * 64 + o * 4);
      default: return 0.0f;
    }
  }

  // Weight k, as products with f32 inputs see it.
  float value(std::size_t k) const {
    switch (kind) {
      case Dtype::f32: return load<float>(block + (k * kBlockOutputs + o) * 4);
      case Dtype::f16: return half(block + (k * kBlockOutputs + o) * 2);
      case Dtype::bf16: return bf16(block + (k / 2 * kBlockOutputs + o) * 4 + k % 2 * 2);
      default: break;
    }
    const std::size_t g = k / kGroupInputs;
    const std::size_t sub = k % kGroupInputs / 16;
    const float product = scale(g, sub) * static_cast<float>(code(g, k % kGroupInputs));
    return has_minimum(grouped().scales) ? product + minimum(g, sub) : product;
  }

 private:
  float small(const std::byte* from) const {
    return static_cast<float>(load<std::int8_t>(from + o));
  }
};

}  // namespace drafthouse
