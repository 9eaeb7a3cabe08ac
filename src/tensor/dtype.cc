#include "tensor/dtype.h"

namespace drafthouse {

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return "f32";
    case Dtype::f16: return "f16";
    case Dtype::bf16: return "bf16";
    case Dtype::q8_0: return "q8_0";
    case Dtype::q4_0: return "q4_0";
    case Dtype::q4_1: return "q4_1";
    case Dtype::i64: return "i64";
    case Dtype::i32: return "i32";
    case Dtype::u8: return "u8";
    case Dtype::boolean: return "bool";
    case Dtype::u32: return "u32";
    case Dtype::f8_e4m3: return "f8_e4m3";
    case Dtype::q2_k: return "q2_k";
    case Dtype::q4_k: return "q4_k";
    case Dtype::q5_k: return "q5_k";
    case Dtype::q6_k: return "q6_k";
    case Dtype::q3_k: return "q3_k";
    case Dtype::q5_0: return "q5_0";
    case Dtype::q5_1: return "q5_1";
    case Dtype::iq4_nl: return "iq4_nl";
    case Dtype::iq4_xs: return "iq4_xs";
    case Dtype::mxfp4: return "mxfp4";
    case Dtype::affine: return "affine";
    case Dtype::mxfp4_rows: return "mxfp4_rows";
    case Dtype::f8_blocks: return "f8_blocks";
    case Dtype::a4_64: return "a4_64";
    case Dtype::a4_32: return "a4_32";
    case Dtype::a8_64: return "a8_64";
    case Dtype::a8_32: return "a8_32";
    case Dtype::s8_32: return "s8_32";
  }
  return "?";
}

}  // namespace drafthouse
