#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tensor/half.h"
#include "tensor/row_format.h"

// Rows of every weight format, for tests: random ones, and what their bytes mean, written down once
// more from the formats' definitions, whole blocks at a time.
namespace drafthouse::testing {

// One format for every packed kind, then those that share a kind.
inline std::vector<RowFormat> packed_formats() {
  return {Dtype::f32,
          Dtype::f16,
          Dtype::bf16,
          Dtype::q8_0,
          Dtype::q4_0,
          Dtype::q4_1,
          Dtype::q2_k,
          Dtype::q4_k,
          Dtype::q5_k,
          Dtype::q6_k,
          {Dtype::affine, 4, 64, Dtype::bf16},
          {Dtype::affine, 4, 32, Dtype::bf16},
          {Dtype::affine, 8, 64, Dtype::bf16},
          {Dtype::affine, 8, 32, Dtype::f32},
          Dtype::mxfp4};
}
inline std::vector<RowFormat> all_formats() {
  std::vector<RowFormat> formats = packed_formats();
  for (const Dtype dtype :
       {Dtype::q3_k, Dtype::q5_0, Dtype::q5_1, Dtype::iq4_nl, Dtype::iq4_xs, Dtype::mxfp4_rows}) {
    formats.push_back(dtype);
  }
  for (const std::uint32_t bits : {2u, 3u, 4u, 5u, 6u, 8u}) {
    for (const std::uint32_t group : {32u, 64u, 128u}) {
      for (const Dtype scale : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
        const RowFormat format{Dtype::affine, bits, group, scale};
        if (std::find(formats.begin(), formats.end(), format) == formats.end()) {
          formats.push_back(format);
        }
      }
    }
  }
  for (const Dtype scale : {Dtype::bf16, Dtype::f16, Dtype::f32}) {
    formats.push_back({Dtype::f8_blocks, 0, 128, scale});
  }
  return formats;
}

// A name that a test may have.
inline std::string test_name(const RowFormat& format) {
  std::string name = name_of(format);
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
}

// The next number of inputs that the format can have.
inline std::uint32_t inputs_for(const RowFormat& format, std::uint32_t inputs) {
  const std::uint32_t group = group_inputs(format);
  return (inputs + group - 1) / group * group;
}

// What numbers are like. Extreme: the ends of the codes' range. Tiny: zeros and next to nothing.
enum class Content { plain, extreme, tiny };

inline void put_scale(std::byte* to, Dtype kind, float value) {
  if (kind == Dtype::f32) {
    std::memcpy(to, &value, 4);
    return;
  }
  const std::uint16_t bits = kind == Dtype::f16 ? float_to_half(value) : float_to_bf16(value);
  std::memcpy(to, &bits, 2);
}

inline std::vector<std::byte> random_row(const RowFormat& format, std::uint32_t inputs,
                                         std::mt19937& random, Content content = Content::plain) {
  std::vector<std::byte> row(row_bytes(format, inputs));
  const float factor = content == Content::tiny ? 1e-4f : 1.0f;
  if (layout_of(format.dtype).block_bytes <= 4 && format.group == 0 &&
      format.dtype != Dtype::mxfp4_rows) {
    std::normal_distribution<float> normal(0.0f, 0.05f);
    const std::size_t size = layout_of(format.dtype).block_bytes;
    for (std::uint32_t k = 0; k < inputs; ++k) {
      float value = normal(random);
      if (content == Content::extreme) value = random() % 2 != 0 ? 3e4f : -3e4f;
      if (content == Content::tiny) value *= random() % 2 != 0 ? 1e-6f : 0.0f;
      put_scale(row.data() + k * size, format.dtype, value);
    }
    return row;
  }
  const std::uint8_t ends[] = {0x80, 0x7f, 0xff, 0x00, 0x81, 0xf0, 0x0f};
  const std::size_t whole = row.size() / 2;
  const std::uint8_t first = ends[random() % 4];
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto plain = static_cast<std::uint8_t>(random());
    const std::uint8_t extreme = i < whole ? first : ends[random() % 7];
    row[i] = static_cast<std::byte>(content == Content::extreme ? extreme : plain);
  }
  std::uniform_real_distribution<float> positive(0.001f, 0.02f);
  const auto scale = [&] { return (random() % 8 == 0 ? -1.0f : 1.0f) * positive(random) * factor; };
  const auto exponent = [&](std::size_t at) {
    row[at] = static_cast<std::byte>(content == Content::tiny ? random() % 3 : 118 + random() % 8);
  };
  const DtypeLayout layout = layout_of(format.dtype);
  const std::size_t blocks = inputs / layout.block_values;
  const auto halves = [&](std::size_t at, std::size_t count) {
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t i = 0; i < count; ++i) {
        put_scale(row.data() + b * layout.block_bytes + at + i * 2, Dtype::f16, scale());
      }
    }
  };
  switch (format.dtype) {
    case Dtype::q8_0:
    case Dtype::q4_0:
    case Dtype::q5_0:
    case Dtype::iq4_nl:
    case Dtype::iq4_xs: halves(0, 1); break;
    case Dtype::q4_1:
    case Dtype::q5_1:
    case Dtype::q4_k:
    case Dtype::q5_k: halves(0, 2); break;
    case Dtype::q2_k: halves(80, 2); break;
    case Dtype::q3_k: halves(108, 1); break;
    case Dtype::q6_k: halves(208, 1); break;
    case Dtype::mxfp4:
      for (std::size_t b = 0; b < blocks; ++b) exponent(b * 17);
      break;
    case Dtype::mxfp4_rows:
      for (std::size_t g = 0; g < inputs / 32; ++g) exponent(inputs / 2 + g);
      break;
    default: {
      const std::size_t size = layout_of(format.scale).block_bytes;
      const std::size_t codes =
          format.dtype == Dtype::affine ? std::size_t{inputs} * format.bits / 8 : inputs;
      for (std::size_t at = codes; at < row.size(); at += size) {
        put_scale(row.data() + at, format.scale, scale());
      }
      // No number of E4M3 is infinite, but these two are none.
      for (std::size_t at = 0; format.dtype == Dtype::f8_blocks && at < codes; ++at) {
        if ((row[at] & std::byte{0x7f}) == std::byte{0x7f}) row[at] ^= std::byte{1};
      }
    }
  }
  return row;
}

// What a row's bytes mean, by block.
class RowReader {
 public:
  RowReader(const RowFormat& format, std::uint32_t inputs, const std::byte* row)
      : format_(format), inputs_(inputs), bytes_(reinterpret_cast<const std::uint8_t*>(row)) {}

  std::vector<float> numbers() const {
    std::vector<float> out;
    const DtypeLayout layout = layout_of(format_.dtype);
    switch (format_.dtype) {
      case Dtype::affine: affine(out); return out;
      case Dtype::mxfp4_rows: mxfp4_row(out); return out;
      case Dtype::f8_blocks: f8_row(out); return out;
      default: break;
    }
    for (std::size_t b = 0; b < inputs_ / layout.block_values; ++b) {
      block(bytes_ + b * layout.block_bytes, out);
    }
    return out;
  }

 private:
  static float half(const std::uint8_t* from) {
    return half_to_float(static_cast<std::uint16_t>(from[0] | from[1] << 8));
  }
  static float number(Dtype kind, const std::uint8_t* from) {
    if (kind == Dtype::f16) return half(from);
    if (kind == Dtype::bf16) {
      return bf16_to_float(static_cast<std::uint16_t>(from[0] | from[1] << 8));
    }
    float value;
    std::memcpy(&value, from, 4);
    return value;
  }
  static float e2m1(unsigned code) {
    constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return (code & 8u) != 0 ? -kValues[code & 7u] : kValues[code & 7u];
  }
  static float e8m0(unsigned exponent) {
    return std::ldexp(1.0f, static_cast<int>(exponent) - 127);
  }
  static float iq4(unsigned code) {
    constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
    return static_cast<float>(kValues[code]);
  }
  static float f(int value) { return static_cast<float>(value); }

  void block(const std::uint8_t* b, std::vector<float>& out) const {
    const auto nibble = [](const std::uint8_t* q, int j) {
      return j < 16 ? q[j] & 15 : q[j - 16] >> 4;
    };
    const auto fifth = [](const std::uint8_t* q, int j) {
      std::uint32_t bits;
      std::memcpy(&bits, q, 4);
      return static_cast<int>(bits >> j & 1u) * 16;
    };
    switch (format_.dtype) {
      case Dtype::q2_k: q2_k(b, out); return;
      case Dtype::q3_k: q3_k(b, out); return;
      case Dtype::q4_k: q4_k(b, out, false); return;
      case Dtype::q5_k: q4_k(b, out, true); return;
      case Dtype::q6_k: q6_k(b, out); return;
      case Dtype::iq4_xs: iq4_xs(b, out); return;
      case Dtype::f32:
      case Dtype::f16:
      case Dtype::bf16: out.push_back(number(format_.dtype, b)); return;
      default: break;
    }
    for (int j = 0; j < 32; ++j) {
      switch (format_.dtype) {
        case Dtype::q8_0: out.push_back(half(b) * f(static_cast<std::int8_t>(b[2 + j]))); break;
        case Dtype::q4_0: out.push_back(half(b) * f(nibble(b + 2, j) - 8)); break;
        case Dtype::q4_1: out.push_back(half(b) * f(nibble(b + 4, j)) + half(b + 2)); break;
        case Dtype::q5_0:
          out.push_back(half(b) * f(nibble(b + 6, j) + fifth(b + 2, j) - 16));
          break;
        case Dtype::q5_1:
          out.push_back(half(b) * f(nibble(b + 8, j) + fifth(b + 4, j)) + half(b + 2));
          break;
        case Dtype::iq4_nl: out.push_back(half(b) * iq4(nibble(b + 2, j))); break;
        default: out.push_back(e8m0(b[0]) * e2m1(nibble(b + 1, j)));  // mxfp4
      }
    }
  }
  // 16 parts of 16: low nibble of its byte scales, high nibble shifts down.
  static void q2_k(const std::uint8_t* b, std::vector<float>& out) {
    const std::uint8_t* q = b + 16;
    int part = 0;
    for (int n = 0; n < 256; n += 128, q += 32) {
      for (int shift = 0; shift < 8; shift += 2) {
        for (int l = 0; l < 32; ++l) {
          const int scales = b[part + l / 16];
          out.push_back(half(b + 80) * f(scales & 15) * f(q[l] >> shift & 3) -
                        half(b + 82) * f(scales >> 4));
        }
        part += 2;
      }
    }
  }
  static void q3_k(const std::uint8_t* b, std::vector<float>& out) {
    // 16 scales of 6 bits: 16 nibbles, then 4 bytes of upper pairs.
    int scales[16];
    for (int i = 0; i < 4; ++i) {
      const int upper = b[96 + 8 + i];
      scales[i] = (b[96 + i] & 15) | (upper & 3) << 4;
      scales[4 + i] = (b[96 + 4 + i] & 15) | (upper >> 2 & 3) << 4;
      scales[8 + i] = b[96 + i] >> 4 | (upper >> 4 & 3) << 4;
      scales[12 + i] = b[96 + 4 + i] >> 4 | upper >> 6 << 4;
    }
    const std::uint8_t* q = b + 32;
    int mask = 1;
    int part = 0;
    for (int n = 0; n < 256; n += 128, q += 32) {
      for (int shift = 0; shift < 8; shift += 2, mask <<= 1, part += 2) {
        for (int l = 0; l < 32; ++l) {
          const int code = (q[l] >> shift & 3) - ((b[l] & mask) != 0 ? 0 : 4);
          out.push_back(half(b + 108) * f(scales[part + l / 16] - 32) * f(code));
        }
      }
    }
  }
  static void q4_k(const std::uint8_t* b, std::vector<float>& out, bool fifth) {
    const std::uint8_t* s = b + 4;
    const std::uint8_t* q = b + (fifth ? 48 : 16);
    for (int j = 0; j < 8; ++j) {
      const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
      const int minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
      for (int l = 0; l < 32; ++l) {
        const int byte = q[j / 2 * 32 + l];
        int code = j % 2 == 0 ? byte & 15 : byte >> 4;
        if (fifth && (b[16 + l] >> j & 1) != 0) code += 16;
        out.push_back(half(b) * f(scale) * f(code) - half(b + 2) * f(minimum));
      }
    }
  }
  static void q6_k(const std::uint8_t* b, std::vector<float>& out) {
    for (int n = 0; n < 2; ++n) {
      const std::uint8_t* low = b + n * 64;
      const std::uint8_t* high = b + 128 + n * 32;
      const auto* scales = reinterpret_cast<const std::int8_t*>(b + 192 + n * 8);
      float part[128];
      for (int l = 0; l < 32; ++l) {
        const int codes[] = {
            (low[l] & 15) | (high[l] & 3) << 4, (low[l + 32] & 15) | (high[l] >> 2 & 3) << 4,
            low[l] >> 4 | (high[l] >> 4 & 3) << 4, low[l + 32] >> 4 | high[l] >> 6 << 4};
        for (int i = 0; i < 4; ++i) {
          const int at = i * 32 + l;
          part[at] = half(b + 208) * f(scales[at / 16]) * f(codes[i] - 32);
        }
      }
      out.insert(out.end(), part, part + 128);
    }
  }
  static void iq4_xs(const std::uint8_t* b, std::vector<float>& out) {
    const int upper = b[2] | b[3] << 8;
    for (int i = 0; i < 8; ++i) {
      const int low = i % 2 == 0 ? b[4 + i / 2] & 15 : b[4 + i / 2] >> 4;
      const float scale = half(b) * f((low | (upper >> 2 * i & 3) << 4) - 32);
      const std::uint8_t* q = b + 8 + i * 16;
      for (int j = 0; j < 32; ++j) out.push_back(scale * iq4(j < 16 ? q[j] & 15 : q[j - 16] >> 4));
    }
  }
  void affine(std::vector<float>& out) const {
    const std::size_t size = layout_of(format_.scale).block_bytes;
    const std::uint8_t* scales = bytes_ + std::size_t{inputs_} * format_.bits / 8;
    const std::uint8_t* minima = scales + inputs_ / format_.group * size;
    for (std::size_t k = 0; k < inputs_; ++k) {
      int code = 0;
      for (std::size_t i = 0; i < format_.bits; ++i) {
        const std::size_t bit = k * format_.bits + i;
        code |= (bytes_[bit / 8] >> bit % 8 & 1) << i;
      }
      const std::size_t at = k / format_.group * size;
      out.push_back(number(format_.scale, scales + at) * f(code) +
                    number(format_.scale, minima + at));
    }
  }
  void mxfp4_row(std::vector<float>& out) const {
    for (std::size_t k = 0; k < inputs_; ++k) {
      const unsigned both = bytes_[k / 2];
      out.push_back(e2m1(k % 2 == 0 ? both & 15u : both >> 4) * e8m0(bytes_[inputs_ / 2 + k / 32]));
    }
  }
  void f8_row(std::vector<float>& out) const {
    const std::size_t size = layout_of(format_.scale).block_bytes;
    for (std::size_t k = 0; k < inputs_; ++k) {
      const int bits = bytes_[k];
      const int exponent = bits >> 3 & 15;
      const float magnitude = exponent == 0 ? std::ldexp(f(bits & 7), -9)
                                            : std::ldexp(f(8 + (bits & 7)), exponent - 10);
      out.push_back((bits >= 128 ? -magnitude : magnitude) *
                    number(format_.scale, bytes_ + inputs_ + k / format_.group * size));
    }
  }

  RowFormat format_;
  std::uint32_t inputs_;
  const std::uint8_t* bytes_;
};

}  // namespace drafthouse::testing
