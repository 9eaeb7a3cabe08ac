#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace drafthouse::reference {
namespace {

void put(std::byte* tile, std::size_t unit, const void* four_bytes) {
  std::memcpy(tile + unit * 4, four_bytes, 4);
}

// Rounds to the nearest integer, ties to even, within ±127. Requires the default rounding mode.
std::int8_t to_code(float value) {
  const float rounded = std::nearbyint(value);
  const float least = rounded > -127.0f ? rounded : -127.0f;
  return static_cast<std::int8_t>(least < 127.0f ? least : 127.0f);
}

void pack_int8_group(const float in[kGroupInputs], std::uint32_t rows, std::uint32_t row,
                     std::byte* group) {
  float amax = 0.0f;
  for (std::uint32_t k = 0; k < kGroupInputs; ++k) amax = std::fmax(amax, std::fabs(in[k]));
  // Below 2^-100 the quotient could overflow.
  const bool zero = amax < 0x1p-100f;
  const float scale = zero ? 0.0f : amax / 127.0f;
  const float inverse = zero ? 0.0f : 127.0f / amax;

  std::int32_t sum = 0;
  for (std::uint32_t quad = 0; quad < kGroupInputs / 4; ++quad) {
    std::int8_t codes[4];
    for (std::uint32_t i = 0; i < 4; ++i) {
      codes[i] = to_code(in[quad * 4 + i] * inverse);
      sum += codes[i];
    }
    put(group, quad * rows + row, codes);
  }
  put(group, 8 * rows + row, &scale);
  put(group, 9 * rows + row, &sum);
}

}  // namespace

void pack_activations(ActKind kind, const float* in, std::size_t in_stride, std::uint32_t rows,
                      std::uint32_t inputs, std::byte* tile) {
  for (std::uint32_t row = 0; row < rows; ++row) {
    for (std::uint32_t g = 0; g < padded_inputs(inputs) / kGroupInputs; ++g) {
      float x[kGroupInputs];
      for (std::uint32_t i = 0; i < kGroupInputs; ++i) {
        const std::uint32_t k = g * kGroupInputs + i;
        x[i] = k < inputs ? in[row * in_stride + k] : 0.0f;
      }
      switch (kind) {
        case ActKind::f32:
          for (std::uint32_t i = 0; i < kGroupInputs; ++i) {
            put(tile, static_cast<std::size_t>(g * kGroupInputs + i) * rows + row, &x[i]);
          }
          break;
        case ActKind::bf16:
          for (std::uint32_t i = 0; i < kGroupInputs; i += 2) {
            const std::uint16_t pair[2] = {float_to_bf16(x[i]), float_to_bf16(x[i + 1])};
            put(tile, static_cast<std::size_t>((g * kGroupInputs + i) / 2) * rows + row, pair);
          }
          break;
        case ActKind::int8:
          pack_int8_group(x, rows, row, tile + static_cast<std::size_t>(g) * 10 * rows * 4);
          break;
      }
    }
  }
}

}  // namespace drafthouse::reference
