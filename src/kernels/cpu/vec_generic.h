#pragma once

#include <cstddef>
#include <cstdint>

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kLanes = 16;

struct Vec {
  float lane[kLanes];
};
struct Mask {
  std::uint32_t bits;
};

inline bool has(Mask mask, std::uint32_t lane) { return (mask.bits >> lane & 1u) != 0; }

template <class Function>
inline Vec each_lane(Function function) {
  Vec out;
  for (std::uint32_t i = 0; i < kLanes; ++i) out.lane[i] = function(i);
  return out;
}
inline std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline Mask mask_of(std::uint32_t bits) { return {bits}; }

inline Vec splat(float x) {
  return each_lane([=](std::uint32_t) { return x; });
}
inline Vec load(const float* from) {
  return each_lane([=](std::uint32_t i) { return from[i]; });
}
inline void store(float* to, Vec x) {
  for (std::uint32_t i = 0; i < kLanes; ++i) to[i] = x.lane[i];
}
// Lanes outside the mask become `fill`; their memory is not touched.
inline Vec load(const float* from, Mask mask, Vec fill) {
  return each_lane([=](std::uint32_t i) { return has(mask, i) ? from[i] : fill.lane[i]; });
}
inline void store(float* to, Mask mask, Vec x) {
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if (has(mask, i)) to[i] = x.lane[i];
  }
}
// yes where the mask is set, else no.
inline Vec select(Mask mask, Vec yes, Vec no) {
  return each_lane([=](std::uint32_t i) { return has(mask, i) ? yes.lane[i] : no.lane[i]; });
}

inline Vec add(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] * b.lane[i]; });
}
inline Vec div(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] / b.lane[i]; });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each_lane(
      [=](std::uint32_t i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
// a > b ? a : b and a < b ? a : b, so b where either is NaN.
inline Vec max(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec min(Vec a, Vec b) {
  return each_lane([=](std::uint32_t i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// To the nearest integer, ties to even. |x| < 2^22 or NaN.
inline Vec round(Vec x) {
  return each_lane([=](std::uint32_t i) { return (x.lane[i] + 0x1.8p23f) - 0x1.8p23f; });
}
// x · 2^n for an integral n, with one rounding.
inline Vec times_power_of_two(Vec x, Vec n) {
  // In two factors, so that the ends of the range are reached with one rounding.
  return each_lane([=](std::uint32_t i) {
    const int whole = n.lane[i] == n.lane[i] ? static_cast<int>(n.lane[i]) : 0;
    const int half = whole >> 1;
    const float a = float_of(static_cast<std::uint32_t>(half + 127) << 23);
    const float b = float_of(static_cast<std::uint32_t>(whole - half + 127) << 23);
    return x.lane[i] * a * b;
  });
}
// Bit i is set where a[i] == b[i].
inline std::uint32_t equal_bits(Vec a, Vec b) {
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    if (a.lane[i] == b.lane[i]) bits |= 1u << i;
  }
  return bits;
}

// Lanes i and i + 8, then i + 4, i + 2, i + 1.
inline float sum(Vec x) {
  for (std::uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::uint32_t i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  }
  return x.lane[0];
}
inline float max_lane(Vec x) {
  for (std::uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::uint32_t i = 0; i < width; ++i) {
      if (!(x.lane[i] > x.lane[i + width])) x.lane[i] = x.lane[i + width];
    }
  }
  return x.lane[0];
}

// 16 lanes as raw bits: 32 bits each.
inline Vec load_units(const std::byte* from) {
  Vec out;
  __builtin_memcpy(out.lane, from, sizeof(out.lane));
  return out;
}
inline Vec splat_unit(const std::byte* from) {
  float unit;
  __builtin_memcpy(&unit, from, sizeof(unit));
  return splat(unit);
}
inline Vec and_bits(Vec x, std::uint32_t bits) {
  return each_lane([=](std::uint32_t i) { return float_of(bits_of(x.lane[i]) & bits); });
}
inline Vec shift_up_16(Vec x) {
  return each_lane([=](std::uint32_t i) { return float_of(bits_of(x.lane[i]) << 16); });
}

// Rounded to bfloat16 (ties to even, NaN stays NaN), in the upper half of each lane.
inline Vec round_bf16(Vec x) {
  return each_lane([=](std::uint32_t i) {
    const std::uint32_t bits = bits_of(x.lane[i]);
    const std::uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return float_of((x.lane[i] == x.lane[i] ? rounded : bits | 0x400000u) & 0xffff0000u);
  });
}
inline void store_bf16(std::uint16_t* to, Vec x) {
  const Vec rounded = round_bf16(x);
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    to[i] = static_cast<std::uint16_t>(bits_of(rounded.lane[i]) >> 16);
  }
}
inline Vec load_bf16(const std::byte* from) {
  std::uint16_t bits[kLanes];
  __builtin_memcpy(bits, from, sizeof(bits));
  return each_lane([&](std::uint32_t i) { return float_of(std::uint32_t{bits[i]} << 16); });
}

// Sixteen doubles, lane by lane.
struct DoubleVec {
  double lane[kLanes];
};

inline DoubleVec double_zero() { return {}; }
inline DoubleVec add(DoubleVec a, Vec b) {
  for (std::uint32_t i = 0; i < kLanes; ++i) a.lane[i] += static_cast<double>(b.lane[i]);
  return a;
}
inline void store(double* to, DoubleVec x) {
  for (std::uint32_t i = 0; i < kLanes; ++i) to[i] = x.lane[i];
}

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
