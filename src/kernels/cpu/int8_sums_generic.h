#pragma once

// Part of int8_sums.h.
namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

template <class Codes, int rows>
DRAFTHOUSE_INLINE void add_quad(const Words& stored, const ActGroup& x, int quad,
                                std::int32_t (&sums)[rows][kLanes]) {
  std::uint8_t bytes[kQuadBytes];
  std::memcpy(bytes, &stored, sizeof bytes);
  std::int16_t weights[4][kLanes];
  for (std::uint32_t at = 0; at < kQuadBytes; ++at) {
    weights[at % 4][at / 4] = static_cast<std::int16_t>(bytes[at] - Codes::kOffset);
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; ++r) {
    for (std::uint32_t j = 0; j < 4; ++j) {
      const auto input = static_cast<std::int16_t>(static_cast<std::int8_t>(x.codes(quad, r)[j]));
      for (std::uint32_t o = 0; o < kLanes; ++o) sums[r][o] += weights[j][o] * input;
    }
  }
}

template <class Codes, int rows, class Finish>
DRAFTHOUSE_INLINE void group_sums(const std::byte* codes, const ActGroup& x, const Finish& finish) {
  for (int part = 0; part < Codes::kParts; ++part) {
    std::int32_t sums[rows][kLanes] = {};
    for (int i = part * Codes::kPartQuads; i < (part + 1) * Codes::kPartQuads; ++i) {
      add_quad<Codes>(quad_at<Codes::kBits>(codes, static_cast<std::uint32_t>(i)), x, i, sums);
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      Words sum;
      std::memcpy(&sum, sums[r], sizeof sum);
      finish(At<0>{}, x, r, part, sum);
    }
  }
}
}  // namespace
}  // namespace drafthouse::DRAFTHOUSE_ISA
