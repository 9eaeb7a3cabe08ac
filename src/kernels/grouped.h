#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace drafthouse {

// Packed kinds of integer codes, by their parts. 64 inputs of a column block (a pair of 32-input
// groups, 16 outputs) are a header of scales, then the codes of both groups:
//
//   bits 4  [4 × 64 bytes: low nibbles quad 2i, high nibbles quad 2i + 1]
//   bits 5  as 4, then 64 bytes whose bit i is the fifth bit of quad i
//   bits 6  as 4, then 2 × 64 bytes whose bits 2i, 2i + 1 are the upper bits of quad 4j + i
//   bits 8  [8 × 64 bytes: quad i]
//
// where a quad is [16 outputs][4 inputs]. A stored code stands for code − offset.
enum class ScaleForm : std::uint8_t {
  half,      // [2 groups][16] half scales
  half_min,  // as half, then [2][16] half minima
  bf16_64,   // [16] bf16 scales of both groups, [16] minima
  bf16_32,   // [2][16] bf16 scales, [2][16] minima
  k32,       // [16] half, [16] half negated, [2][16] int8, [2][16] int8: scale = first × third,
             // minimum = second × fourth
  k16,       // [16] half, [4 times 16 inputs][16] int8, 32 bytes of nothing: scale = both's product
  k16_min,   // [16] half, [16] half negated, [4][16] int8, [4][16] int8: as k32, per 16 inputs
  f32,       // [2][16] float scales
  f32_min,   // as f32, then [2][16] float minima
};

struct GroupedKind {
  std::uint32_t bits;
  std::int32_t offset;
  ScaleForm scales;
};

constexpr bool is_grouped(Dtype kind) {
  return (kind >= Dtype::q8_0 && kind <= Dtype::q4_1) ||
         (kind >= Dtype::q2_k && kind <= Dtype::q6_k) || kind >= Dtype::a4_64;
}

// Requires is_grouped(kind).
constexpr GroupedKind grouped_kind(Dtype kind) {
  switch (kind) {
    case Dtype::q4_0: return {4, 8, ScaleForm::half};
    case Dtype::q4_1: return {4, 0, ScaleForm::half_min};
    case Dtype::q2_k: return {4, 0, ScaleForm::k16_min};
    case Dtype::q4_k: return {4, 0, ScaleForm::k32};
    case Dtype::q5_k: return {5, 0, ScaleForm::k32};
    case Dtype::q6_k: return {6, 32, ScaleForm::k16};
    case Dtype::a4_64: return {4, 0, ScaleForm::bf16_64};
    case Dtype::a4_32: return {4, 0, ScaleForm::bf16_32};
    case Dtype::a8_64: return {8, 0, ScaleForm::bf16_64};
    case Dtype::a8_32: return {8, 0, ScaleForm::f32_min};
    case Dtype::s8_32: return {8, 128, ScaleForm::f32};
    default: return {8, 128, ScaleForm::half};
  }
}

constexpr std::size_t header_bytes(ScaleForm form) {
  switch (form) {
    case ScaleForm::half:
    case ScaleForm::bf16_64: return 64;
    case ScaleForm::half_min:
    case ScaleForm::bf16_32:
    case ScaleForm::k32:
    case ScaleForm::k16:
    case ScaleForm::f32: return 128;
    case ScaleForm::k16_min: return 192;
    case ScaleForm::f32_min: return 256;
  }
  return 0;
}

// Of one group.
constexpr std::size_t code_bytes(std::uint32_t bits) { return bits * 64; }

constexpr std::size_t pair_bytes(const GroupedKind& kind) {
  return header_bytes(kind.scales) + 2 * code_bytes(kind.bits);
}

constexpr bool has_minimum(ScaleForm form) {
  return form != ScaleForm::half && form != ScaleForm::k16 && form != ScaleForm::f32;
}

// Scales of a group of 32 inputs.
constexpr std::uint32_t subgroups(ScaleForm form) {
  return form == ScaleForm::k16 || form == ScaleForm::k16_min ? 2 : 1;
}

}  // namespace drafthouse
