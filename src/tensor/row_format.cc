#include "tensor/row_format.h"

namespace drafthouse {

std::uint64_t row_bytes(const RowFormat& format, std::uint64_t inputs) {
  const std::uint64_t scale = layout_of(format.scale).block_bytes;
  switch (format.dtype) {
    case Dtype::affine: return inputs * format.bits / 8 + inputs / format.group * scale * 2;
    case Dtype::mxfp4_rows: return inputs / 2 + inputs / 32;
    case Dtype::f8_blocks: return inputs + (inputs + format.group - 1) / format.group * scale;
    default: break;
  }
  const DtypeLayout layout = layout_of(format.dtype);
  return inputs / layout.block_values * layout.block_bytes;
}

std::uint32_t group_inputs(const RowFormat& format) {
  switch (format.dtype) {
    case Dtype::affine: return format.group;
    case Dtype::mxfp4_rows: return 32;
    default: return layout_of(format.dtype).block_values;
  }
}

Dtype packed_kind(const RowFormat& format) {
  switch (format.dtype) {
    case Dtype::q5_0:
    case Dtype::iq4_nl: return Dtype::q8_0;
    case Dtype::q3_k: return Dtype::q6_k;
    case Dtype::q5_1: return Dtype::a8_32;
    case Dtype::iq4_xs:
    case Dtype::mxfp4:
    case Dtype::mxfp4_rows: return Dtype::s8_32;
    case Dtype::f8_blocks: return Dtype::f32;
    case Dtype::affine: break;
    default: return format.dtype;
  }
  const bool nibbles = format.bits <= 4;
  if (format.scale == Dtype::f16 && nibbles) return Dtype::q4_1;
  if (format.scale != Dtype::bf16) return Dtype::a8_32;
  if (format.group >= 64) return nibbles ? Dtype::a4_64 : Dtype::a8_64;
  return nibbles ? Dtype::a4_32 : Dtype::a8_32;
}

bool packs_exactly(const RowFormat& format) {
  return format.dtype != Dtype::f8_blocks || format.scale != Dtype::f32;
}

std::string name_of(const RowFormat& format) {
  std::string text(name_of(format.dtype));
  if (format.dtype == Dtype::affine) {
    text.append(" ").append(std::to_string(format.bits)).append(" bit");
  }
  if (format.dtype == Dtype::affine || format.dtype == Dtype::f8_blocks) {
    text.append(" g").append(std::to_string(format.group));
    text.append(" ").append(name_of(format.scale));
  }
  return text;
}

}  // namespace drafthouse
