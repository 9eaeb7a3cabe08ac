#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/lanes.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint64_t kChains = 12;  // enough to hide every latency, few enough for registers
constexpr std::uint64_t kUnroll = 8;

#if defined(__AVX512F__)
using Vector = __m512i;
inline Vector splat_bits(std::int32_t bits) { return _mm512_set1_epi32(bits); }
#elif defined(__AVX2__)
using Vector = __m256i;
inline Vector splat_bits(std::int32_t bits) { return _mm256_set1_epi32(bits); }
#else
// Four lanes are what every CPU that runs this has.
typedef std::int32_t Vector __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
inline Vector splat_bits(std::int32_t bits) { return Vector{bits, bits, bits, bits}; }
#endif

constexpr std::uint64_t kWords = sizeof(Vector) / 4;

// One bf16 (or fp32) multiply-add of whole vectors, and the operations of a 32-bit lane.
#if defined(__AVX512BF16__)
constexpr std::uint64_t kFloatOps = 4;
inline Vector step_float(Vector acc, Vector a, Vector b) {
  return _mm512_castps_si512(_mm512_dpbf16_ps(
      _mm512_castsi512_ps(acc), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
}
#elif defined(__AVX512F__)
constexpr std::uint64_t kFloatOps = 2;
inline Vector step_float(Vector acc, Vector a, Vector b) {
  return _mm512_castps_si512(
      _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _mm512_castsi512_ps(acc)));
}
#elif defined(__AVX2__)
constexpr std::uint64_t kFloatOps = 2;
inline Vector step_float(Vector acc, Vector a, Vector b) {
  return _mm256_castps_si256(
      _mm256_fmadd_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), _mm256_castsi256_ps(acc)));
}
#else
constexpr std::uint64_t kFloatOps = 2;
inline Vector step_float(Vector acc, Vector a, Vector b) {
  return reinterpret_cast<Vector>(reinterpret_cast<Floats>(a) * reinterpret_cast<Floats>(b) +
                                  reinterpret_cast<Floats>(acc));
}
#endif

#if defined(__AVX512F__)
constexpr std::uint64_t kInt8Ops = 8;
inline Vector step_int8(Vector acc, Vector a, Vector b) { return _mm512_dpbusd_epi32(acc, a, b); }
#elif defined(__AVXVNNI__)
constexpr std::uint64_t kInt8Ops = 8;
inline Vector step_int8(Vector acc, Vector a, Vector b) {
  return _mm256_dpbusd_avx_epi32(acc, a, b);
}
#elif defined(__AVX2__)
constexpr std::uint64_t kInt8Ops = 8;
inline Vector step_int8(Vector acc, Vector a, Vector b) {
  // The products hang on acc so that they are not computed once for the whole loop.
  const __m256i pairs = _mm256_maddubs_epi16(a, acc);
  return _mm256_add_epi32(b, _mm256_madd_epi16(pairs, b));
}
#else
constexpr std::uint64_t kInt8Ops = 2;
inline Vector step_int8(Vector acc, Vector a, Vector b) { return acc * a + b; }
#endif

// Bits of the operands: what a word of each holds, and where the sums start.
struct Operands {
  std::int32_t a, b, start;
};
constexpr Operands kInt8Operands{0x01010101, 0x00010001, 1};
// 2^-10 as a float and as a pair of bf16, and 1: no sum becomes a denormal, which some CPUs add a
// hundred times slower, or infinite.
constexpr Operands kFloatOperands{0x3a803a80, 0x3a803a80, 0x3f800000};

template <Vector (*step)(Vector, Vector, Vector)>
std::uint64_t repeat(std::uint64_t iterations, std::uint64_t ops_per_word, Operands operands) {
  Vector acc[kChains];
  for (std::uint64_t i = 0; i < kChains; ++i) acc[i] = splat_bits(operands.start);
  Vector a = splat_bits(operands.a);
  Vector b = splat_bits(operands.b);
  // Opaque to the compiler: neither operand is a constant.
  __asm__ volatile("" : "+x"(a), "+x"(b));
  for (std::uint64_t n = 0; n < iterations; ++n) {
    for (std::uint64_t u = 0; u < kUnroll; ++u) {
      for (std::uint64_t i = 0; i < kChains; ++i) acc[i] = step(acc[i], a, b);
    }
  }
  for (std::uint64_t i = 0; i < kChains; ++i) __asm__ volatile("" : : "x"(acc[i]));
  return iterations * kUnroll * kChains * kWords * ops_per_word;
}

}  // namespace

std::uint64_t peak_float(std::uint64_t iterations) {
  return repeat<step_float>(iterations, kFloatOps, kFloatOperands);
}

std::uint64_t peak_int8(std::uint64_t iterations) {
  return repeat<step_int8>(iterations, kInt8Ops, kInt8Operands);
}

std::uint64_t read_bytes(const std::byte* data, std::size_t bytes) {
  Words sums[4];
  std::memset(sums, 0, sizeof sums);
  // Two streams, as the matrix products have.
  const std::size_t half = bytes / 512 * 256;
  const auto add_line = [](Words& sum, const std::byte* from) {
#if defined(__AVX512F__)
    sum = _mm512_add_epi32(sum, load_words(from));
#elif defined(__AVX2__)
    const Words line = load_words(from);
    sum = {_mm256_add_epi32(sum.low, line.low), _mm256_add_epi32(sum.high, line.high)};
#else
    const Words line = load_words(from);
    for (int i = 0; i < 16; ++i) sum.at[i] += line.at[i];
#endif
  };
  for (std::size_t i = 0; i < half; i += 128) {
    add_line(sums[0], data + i);
    add_line(sums[1], data + i + 64);
    add_line(sums[2], data + half + i);
    add_line(sums[3], data + half + i + 64);
  }
  for (std::size_t i = 2 * half; i < bytes; i += 64) add_line(sums[0], data + i);
  std::uint32_t words[4 * 16];
  std::memcpy(words, sums, sizeof words);
  std::uint64_t total = 0;
  for (const std::uint32_t word : words) total += word;
  return total;
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
