#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/lanes.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kQuads = kGroupInputs / 4;

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }

inline std::uint32_t bf16_of(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? ((bits >> 16) | 0x40u) : rounded;
}

inline void put(std::byte* tile, std::size_t unit, std::uint32_t word) {
  std::memcpy(tile + unit * 4, &word, 4);
}

// One row's 32 inputs as units of a tile.
void pack_f32(const float in[kGroupInputs], std::uint32_t rows, std::byte* first) {
  for (std::uint32_t i = 0; i < kGroupInputs; ++i) {
    put(first, static_cast<std::size_t>(i) * rows, bits_of(in[i]));
  }
}

void pack_bf16(const float in[kGroupInputs], std::uint32_t rows, std::byte* first) {
  std::uint32_t units[kGroupInputs / 2];
  for (std::uint32_t i = 0; i < kGroupInputs / 2; ++i) {
    units[i] = bf16_of(in[2 * i]) | bf16_of(in[2 * i + 1]) << 16;
  }
  for (std::uint32_t i = 0; i < kGroupInputs / 2; ++i) {
    put(first, static_cast<std::size_t>(i) * rows, units[i]);
  }
}

#if defined(__AVX2__)

inline __m256 size_of(const float* in) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(in));
}

float largest(const float in[kGroupInputs]) {
  const __m256 eight = _mm256_max_ps(_mm256_max_ps(size_of(in), size_of(in + 8)),
                                     _mm256_max_ps(size_of(in + 16), size_of(in + 24)));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

// codes[i] = in[i] · inverse, to nearest even within ±127; returns their sum.
std::int32_t quantise(const float in[kGroupInputs], float inverse,
                      std::int8_t codes[kGroupInputs]) {
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i words[4];
  for (int i = 0; i < 4; ++i) {
    words[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(in + 8 * i), factor));
  }
  // Packing works within 128-bit halves; the permutation undoes that.
  __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(words[0], words[1]),
                                     _mm256_packs_epi32(words[2], words[3]));
  bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  bytes = _mm256_max_epi8(bytes, _mm256_set1_epi8(-127));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), bytes);
  const __m256i eight =
      _mm256_add_epi32(_mm256_add_epi32(words[0], words[1]), _mm256_add_epi32(words[2], words[3]));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

#else

float largest(const float in[kGroupInputs]) {
  float amax = 0.0f;
  for (std::uint32_t i = 0; i < kGroupInputs; ++i) {
    const float size = __builtin_fabsf(in[i]);
    amax = amax > size ? amax : size;
  }
  return amax;
}

std::int32_t quantise(const float in[kGroupInputs], float inverse,
                      std::int8_t codes[kGroupInputs]) {
  std::int32_t sum = 0;
  for (std::uint32_t i = 0; i < kGroupInputs; ++i) {
    float value = in[i] * inverse;
    value = value > -127.0f ? value : -127.0f;
    value = value < 127.0f ? value : 127.0f;
    // Adding 1.5 · 2^23 leaves the rounded integer in the low bits of the sum.
    const auto code = static_cast<std::int32_t>(bits_of(value + 12582912.0f) - 0x4b400000u);
    codes[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  return sum;
}

#endif

void pack_int8(const float in[kGroupInputs], std::uint32_t rows, std::byte* first) {
  const float amax = largest(in);
  const bool zero = amax < 0x1p-100f;
  const float scale = zero ? 0.0f : amax / 127.0f;
  const float inverse = zero ? 0.0f : 127.0f / amax;
  std::int8_t codes[kGroupInputs];
  const std::int32_t sum = quantise(in, inverse, codes);
  for (std::uint32_t quad = 0; quad < kQuads; ++quad) {
    std::uint32_t unit;
    std::memcpy(&unit, codes + quad * 4, 4);
    put(first, static_cast<std::size_t>(quad) * rows, unit);
  }
  put(first, static_cast<std::size_t>(8) * rows, bits_of(scale));
  put(first, static_cast<std::size_t>(9) * rows, static_cast<std::uint32_t>(sum));
}

using PackGroup = void (*)(const float in[kGroupInputs], std::uint32_t rows, std::byte* first);

template <PackGroup pack>
void pack_rows(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t inputs,
               std::uint32_t group_units, std::byte* tile) {
  const std::uint32_t groups = (inputs + kInputPadding - 1) / kInputPadding * 2;
  for (std::uint32_t row = 0; row < rows; ++row) {
    const float* from = in + row * in_stride;
    std::byte* to = tile + static_cast<std::size_t>(row) * 4;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const std::uint32_t k = g * kGroupInputs;
      if (k + kGroupInputs <= inputs) {
        pack(from + k, rows, to);
      } else {
        float padded[kGroupInputs] = {};
        if (k < inputs) std::memcpy(padded, from + k, (inputs - k) * sizeof(float));
        pack(padded, rows, to);
      }
      to += static_cast<std::size_t>(group_units) * rows * 4;
    }
  }
}

}  // namespace

void pack_activations(ActKind kind, const float* in, std::size_t in_stride, std::uint32_t rows,
                      std::uint32_t inputs, std::byte* tile) {
  switch (kind) {
    case ActKind::f32: pack_rows<pack_f32>(in, in_stride, rows, inputs, 32, tile); return;
    case ActKind::bf16: pack_rows<pack_bf16>(in, in_stride, rows, inputs, 16, tile); return;
    case ActKind::int8: pack_rows<pack_int8>(in, in_stride, rows, inputs, 10, tile); return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
