#pragma once

#include <cstdint>

namespace drafthouse {

// Values of an attention head: what the kernels are written for. They take whole vectors of 16 and
// keep a head on the stack. Published models have 256 values or fewer, a few 512.
inline constexpr std::uint32_t kHeadDimMax = 512;
inline constexpr std::uint32_t kHeadDimStep = 16;

}  // namespace drafthouse
