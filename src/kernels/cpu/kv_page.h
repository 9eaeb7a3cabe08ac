#pragma once

#include "kernels/cpu/vec.h"

// The two kinds of attention pages in units of 32 bits: a bf16 page holds two numbers in a unit
// (k, k+1 of a key; two positions of a value), an f32 page one. Both have 16 units in a vector.
//
// Factors are what units are multiplied by, one for all 16: the numbers of a query, or the weights
// of positions. They stand in memory in the form that is quickest to spread over a vector.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::size_t kUnitBytes = 4;

struct F32Page {
  static constexpr std::uint32_t kUnitValues = 1;
  static constexpr bool kWidensQueries = false;
  using Unit = Vec;

  static Unit load(const std::byte* from) { return load_units(from); }
  static Unit load_kept(const std::byte* from, std::uint32_t bits) {
    return and_bits(load_units(from), bits);
  }
  static Unit factor(const std::byte* factors, std::size_t unit) {
    return splat_unit(factors + unit * kUnitBytes);
  }
  static Vec dot(Unit a, Unit b, Vec acc) { return fma(a, b, acc); }
  static void store_weights(std::byte* to, std::uint32_t index, Vec p) {
    store(reinterpret_cast<float*>(to) + index, p);
  }
};

#if defined(__AVX512BF16__)

// The instruction treats denormals as zero, on both sides.
struct Bf16Page {
  static constexpr std::uint32_t kUnitValues = 2;
  static constexpr bool kWidensQueries = false;
  using Unit = __m512bh;

  static Unit load(const std::byte* from) { return unit_of(load_units(from)); }
  static Unit load_kept(const std::byte* from, std::uint32_t bits) {
    return unit_of(and_bits(load_units(from), bits));
  }
  static Unit factor(const std::byte* factors, std::size_t unit) {
    return unit_of(splat_unit(factors + unit * kUnitBytes));
  }
  static Vec dot(Unit a, Unit b, Vec acc) { return _mm512_dpbf16_ps(acc, a, b); }
  static void store_weights(std::byte* to, std::uint32_t index, Vec p) {
    const __m256bh rounded = _mm512_cvtneps_pbh(p);
    __builtin_memcpy(to + std::size_t{index} * 2, &rounded, sizeof(rounded));
  }

 private:
  static Unit unit_of(Vec raw) { return __builtin_bit_cast(__m512bh, raw); }
};

#else

// The even number of a unit first, then the odd one, in one accumulator. Factors are floats.
struct Bf16Page {
  static constexpr std::uint32_t kUnitValues = 2;
  static constexpr bool kWidensQueries = true;
  struct Unit {
    Vec even;
    Vec odd;
  };

  static Unit load(const std::byte* from) { return unit_of(load_units(from)); }
  static Unit load_kept(const std::byte* from, std::uint32_t bits) {
    return unit_of(and_bits(load_units(from), bits));
  }
  static Unit factor(const std::byte* factors, std::size_t unit) {
    return {splat_unit(factors + unit * 8), splat_unit(factors + unit * 8 + 4)};
  }
  static Vec dot(const Unit& a, const Unit& b, Vec acc) {
    return fma(a.odd, b.odd, fma(a.even, b.even, acc));
  }
  static void store_weights(std::byte* to, std::uint32_t index, Vec p) {
    store(reinterpret_cast<float*>(to) + index, round_bf16(p));
  }

 private:
  static Unit unit_of(Vec raw) { return {shift_up_16(raw), and_bits(raw, 0xffff0000u)}; }
};

#endif

}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
