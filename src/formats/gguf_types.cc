#include "formats/gguf_types.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace drafthouse {
namespace {

// By number (ggml.h). Numbers that ggml has withdrawn keep their old names, for messages.
constexpr std::array<std::string_view, 41> kNames = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4"};

}  // namespace

std::optional<Dtype> dtype_of_ggml(std::uint32_t type) {
  switch (type) {
    case 0: return Dtype::f32;
    case 1: return Dtype::f16;
    case 2: return Dtype::q4_0;
    case 3: return Dtype::q4_1;
    case 6: return Dtype::q5_0;
    case 7: return Dtype::q5_1;
    case 8: return Dtype::q8_0;
    case 10: return Dtype::q2_k;
    case 11: return Dtype::q3_k;
    case 12: return Dtype::q4_k;
    case 13: return Dtype::q5_k;
    case 14: return Dtype::q6_k;
    case 20: return Dtype::iq4_nl;
    case 23: return Dtype::iq4_xs;
    case 26: return Dtype::i32;
    case 27: return Dtype::i64;
    case 30: return Dtype::bf16;
    case 39: return Dtype::mxfp4;
    default: return std::nullopt;
  }
}

std::string name_of_ggml(std::uint32_t type) {
  return type < kNames.size() ? std::string(kNames[type]) : fmt::format("number {}", type);
}

}  // namespace drafthouse
