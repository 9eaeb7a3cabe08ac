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
  }
  return "?";
}

}  // namespace drafthouse
