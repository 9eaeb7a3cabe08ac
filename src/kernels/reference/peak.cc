#include <cmath>
#include <cstring>

#include "kernels/reference/reference.h"

namespace drafthouse::reference {

std::uint64_t peak_float(std::uint64_t iterations) {
  volatile float result = 0.0f;
  float acc = 0.0f;
  for (std::uint64_t i = 0; i < iterations; ++i) acc = std::fma(acc, 0.5f, 1.0f);
  result = acc;
  static_cast<void>(result);
  return iterations * 2;
}

std::uint64_t peak_int8(std::uint64_t iterations) {
  volatile std::uint32_t result = 0;
  std::uint32_t acc = 1;
  for (std::uint64_t i = 0; i < iterations; ++i) acc = acc * 3u + 1u;
  result = acc;
  static_cast<void>(result);
  return iterations * 2;
}

std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data + i, 8);
    sum += word;
  }
  return sum;
}

}  // namespace drafthouse::reference
