#include "kernels/isa.h"

#include <cstdint>

#if DRAFTHOUSE_X86
#include <cpuid.h>
#endif

namespace drafthouse {
namespace {

constexpr Isa kBuilt[] = {
    Isa::generic,
#if DRAFTHOUSE_X86
    Isa::avx2,    Isa::avxvnni, Isa::avx512, Isa::avx512bf16,
#endif
};

struct Features {
  bool avx2 = false;
  bool avxvnni = false;
  bool avx512 = false;
  bool avx512bf16 = false;
  bool slow_bf16 = false;  // its bf16 products are slower than fp32 ones
  bool reads_ahead = true;
};

#if DRAFTHOUSE_X86

constexpr bool has_all(std::uint64_t value, std::uint64_t bits) { return (value & bits) == bits; }

// The register states that the operating system saves on a context switch (XCR0).
std::uint64_t saved_states() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

Features detect() {
  constexpr std::uint64_t kYmmState = 0x06;
  constexpr std::uint64_t kZmmState = 0xe6;
  constexpr std::uint32_t kLeaf1 = bit_FMA | bit_OSXSAVE | bit_AVX | bit_F16C;
  constexpr std::uint32_t kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  constexpr std::uint32_t kAvx512Vnni = 1u << 11;
  constexpr std::uint32_t kAvxVnni = 1u << 4;
  constexpr std::uint32_t kAvx512Bf16 = 1u << 5;

  Features found;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !has_all(c, kLeaf1)) return found;
  const std::uint64_t states = saved_states();
  if (!has_all(states, kYmmState)) return found;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
  const std::uint32_t last_subleaf = a;
  const std::uint32_t leaf7_b = b;
  const std::uint32_t leaf7_c = c;
  std::uint32_t leaf71_a = 0;
  if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) leaf71_a = a;

  found.avx2 = has_all(leaf7_b, bit_AVX2);
  found.avxvnni = found.avx2 && has_all(leaf71_a, kAvxVnni);
  found.avx512 = found.avx2 && has_all(states, kZmmState) && has_all(leaf7_b, kAvx512) &&
                 has_all(leaf7_c, kAvx512Vnni);
  found.avx512bf16 = found.avx512 && has_all(leaf71_a, kAvx512Bf16);
  __get_cpuid(0, &a, &b, &c, &d);
  const bool intel =
      b == signature_INTEL_ebx && c == signature_INTEL_ecx && d == signature_INTEL_edx;
  // Intel keeps fast bf16 for AMX. On a Sapphire Rapids core VDPBF16PS reached 88 GFLOP/s and fp32
  // FMA 182. A rule, not a measurement: the choice must not change from run to run.
  found.slow_bf16 = intel;
  // A rule for the same reason. To ask for the weights of one or two rows made two Emerald Rapids
  // cores 1.17 to 1.44 times as fast (sixteen, 1.07 to 1.18), and two Zen 4 cores 3 to 8 % slower.
  found.reads_ahead = !intel;
  return found;
}

#else

Features detect() { return Features{}; }

#endif

const Features& features() {
  static const Features found = detect();
  return found;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::generic: return "generic";
    case Isa::avx2: return "avx2";
    case Isa::avxvnni: return "avxvnni";
    case Isa::avx512: return "avx512";
    case Isa::avx512bf16: return "avx512bf16";
  }
  return "?";
}

std::span<const Isa> built_isas() { return kBuilt; }

bool cpu_has(Isa isa) {
  switch (isa) {
    case Isa::generic: return true;
    case Isa::avx2: return features().avx2;
    case Isa::avxvnni: return features().avxvnni;
    case Isa::avx512: return features().avx512;
    case Isa::avx512bf16: return features().avx512bf16;
  }
  return false;
}

bool reads_ahead_by_itself() { return features().reads_ahead; }

Isa best_isa() {
  Isa best = Isa::generic;
  for (const Isa isa : kBuilt) {
    if (isa == Isa::avx512bf16 && features().slow_bf16) continue;
    if (cpu_has(isa)) best = isa;
  }
  return best;
}

}  // namespace drafthouse
