#pragma once

#include <span>
#include <string_view>

namespace drafthouse {

// A class of instruction sets that one set of fast kernels is built for.
enum class Isa {
  generic,     // plain C++, any CPU
  avx2,        // AVX2, FMA, F16C
  avxvnni,     // avx2 with 256-bit AVX-VNNI for int8
  avx512,      // AVX-512 F, BW, VL, DQ and VNNI; bf16 through fp32
  avx512bf16,  // avx512 with VDPBF16PS
};

std::string_view name_of(Isa isa);

// The sets built into this library, weakest first.
std::span<const Isa> built_isas();

// Whether this CPU and its operating system can run `isa`.
bool cpu_has(Isa isa);

// Whether this CPU's own read-ahead keeps up with passes of one or two rows, which use a line of
// weights for so short that to ask for the next ones costs time.
bool reads_ahead_by_itself();

// The built set that is fastest on this CPU: the strongest one, but avx512 where VDPBF16PS is slow.
Isa best_isa();

}  // namespace drafthouse
