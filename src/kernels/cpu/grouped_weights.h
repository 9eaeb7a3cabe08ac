#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/grouped.h"
#include "kernels/packed.h"

// The parts of a packed kind of integer codes (kernels/grouped.h) as this ISA reads them.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr int kQuads = kGroupInputs / 4;
constexpr std::size_t kQuadBytes = kBlockOutputs * 4;

// Quad `quad` of a group's codes, a byte each, without the kind's offset.
template <std::uint32_t bits, int quad>
DRAFTHOUSE_INLINE Words quad_at(const std::byte* codes) {
  if constexpr (bits == 8) {
    return load_words(codes + quad * kQuadBytes);
  } else {
    const Words both = load_words(codes + quad / 2 * kQuadBytes);
    const Words low = masked<0x0f>(shifted<quad % 2 * 4>(both));
    const std::byte* upper = codes + kQuads / 2 * kQuadBytes;
    if constexpr (bits == 5) {
      return either(low, masked<0x10>(shifted<quad - 4>(load_words(upper))));
    } else if constexpr (bits == 6) {
      const Words two_bits = load_words(upper + quad / 4 * kQuadBytes);
      return either(low, masked<0x30>(shifted<quad % 4 * 2 - 4>(two_bits)));
    } else {
      return low;
    }
  }
}

template <std::uint32_t bits>
DRAFTHOUSE_INLINE Words quad_at(const std::byte* codes, std::uint32_t quad) {
  switch (quad) {
    case 0: return quad_at<bits, 0>(codes);
    case 1: return quad_at<bits, 1>(codes);
    case 2: return quad_at<bits, 2>(codes);
    case 3: return quad_at<bits, 3>(codes);
    case 4: return quad_at<bits, 4>(codes);
    case 5: return quad_at<bits, 5>(codes);
    case 6: return quad_at<bits, 6>(codes);
    default: return quad_at<bits, 7>(codes);
  }
}

// Scales and minima of half `sub` of group `group` (0, 1) of a pair.
template <ScaleForm form>
DRAFTHOUSE_INLINE Lanes scale_at(const std::byte* pair, std::size_t group, std::size_t sub) {
  if constexpr (form == ScaleForm::half || form == ScaleForm::half_min) {
    return load_halves(pair + group * 32);
  } else if constexpr (form == ScaleForm::bf16_64) {
    return load_bf16s(pair);
  } else if constexpr (form == ScaleForm::bf16_32) {
    return load_bf16s(pair + group * 32);
  } else if constexpr (form == ScaleForm::k32) {
    return mul(load_halves(pair), load_int8s(pair + 64 + group * 16));
  } else if constexpr (form == ScaleForm::k16) {
    return mul(load_halves(pair), load_int8s(pair + 32 + (group * 2 + sub) * 16));
  } else if constexpr (form == ScaleForm::k16_min) {
    return mul(load_halves(pair), load_int8s(pair + 64 + (group * 2 + sub) * 16));
  } else {
    return load(reinterpret_cast<const float*>(pair + group * 64));
  }
}

template <ScaleForm form>
DRAFTHOUSE_INLINE Lanes minimum_at(const std::byte* pair, std::size_t group, std::size_t sub) {
  static_assert(has_minimum(form));
  if constexpr (form == ScaleForm::half_min) {
    return load_halves(pair + 64 + group * 32);
  } else if constexpr (form == ScaleForm::bf16_64) {
    return load_bf16s(pair + 32);
  } else if constexpr (form == ScaleForm::bf16_32) {
    return load_bf16s(pair + 64 + group * 32);
  } else if constexpr (form == ScaleForm::k32) {
    return mul(load_halves(pair + 32), load_int8s(pair + 96 + group * 16));
  } else if constexpr (form == ScaleForm::k16_min) {
    return mul(load_halves(pair + 32), load_int8s(pair + 128 + (group * 2 + sub) * 16));
  } else {
    return load(reinterpret_cast<const float*>(pair + 128 + group * 64));
  }
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
