#include "kernels/stored_group.h"

#include <bit>
#include <cstring>

#include "tensor/half.h"

// The block layouts are GGUF's (ggml-common.h describes them field by field); a group is one of the
// 32-value parts of a block.

namespace drafthouse {
namespace {

// Values of 4-bit codes: IQ4_NL's own, and twice E2M1's.
constexpr std::int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

std::uint8_t byte_at(const std::byte* from, std::size_t at) {
  return static_cast<std::uint8_t>(from[at]);
}
std::uint16_t word_at(const std::byte* from) {
  std::uint16_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}
float number_at(Dtype kind, const std::byte* from) {
  if (kind == Dtype::bf16) return bf16_to_float(word_at(from));
  if (kind == Dtype::f16) return half_to_float(word_at(from));
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
std::uint8_t biased(int value, int offset) { return static_cast<std::uint8_t>(value + offset); }

// 16 bytes hold codes j (low) and j + 16.
void split_nibbles(const std::byte* bytes, std::uint8_t codes[32]) {
  for (std::size_t j = 0; j < 16; ++j) {
    codes[j] = byte_at(bytes, j) & 15;
    codes[j + 16] = byte_at(bytes, j) >> 4;
  }
}

void look_up(const std::int8_t table[16], std::uint8_t codes[32]) {
  for (std::size_t j = 0; j < 32; ++j) codes[j] = biased(table[codes[j]], 128);
}

// The fifth bits of a group, one each from bit 0 on.
void add_fifth_bits(const std::byte* bits, std::uint8_t codes[32]) {
  for (std::size_t j = 0; j < 32; ++j) {
    codes[j] = static_cast<std::uint8_t>(codes[j] | (byte_at(bits, j / 8) >> j % 8 & 1) << 4);
  }
}

// The scale of the half-scaled E2M1 codes: 2^(e − 127) / 2. Exact down to 2^-128.
float e8m0_half(std::uint8_t exponent) {
  if (exponent >= 2) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 1) << 23);
  }
  return std::bit_cast<float>(0x00200000u << exponent);
}

StoredGroup read_legacy(Dtype kind, const std::byte* block) {
  StoredGroup group;
  group.scale16 = word_at(block);
  switch (kind) {
    case Dtype::q8_0:
      for (std::size_t j = 0; j < 32; ++j) group.codes[j] = byte_at(block, 2 + j) ^ 0x80;
      break;
    case Dtype::q4_0: split_nibbles(block + 2, group.codes); break;
    case Dtype::q4_1:
      group.minimum16 = word_at(block + 2);
      split_nibbles(block + 4, group.codes);
      break;
    case Dtype::q5_0:
      split_nibbles(block + 6, group.codes);
      add_fifth_bits(block + 2, group.codes);
      for (std::uint8_t& code : group.codes) code = biased(code - 16, 128);
      break;
    case Dtype::q5_1:
      group.scale = half_to_float(group.scale16);
      group.minimum = half_to_float(word_at(block + 2));
      split_nibbles(block + 8, group.codes);
      add_fifth_bits(block + 4, group.codes);
      break;
    case Dtype::iq4_nl:
      split_nibbles(block + 2, group.codes);
      look_up(kIq4, group.codes);
      break;
    default:  // mxfp4
      group.scale = e8m0_half(byte_at(block, 0));
      split_nibbles(block + 1, group.codes);
      look_up(kTwiceE2m1, group.codes);
  }
  return group;
}

// Factors of Q4_K and Q5_K: 8 pairs of 6 bits in 12 bytes.
void read_six_bit_factors(const std::byte* s, std::uint32_t g, StoredGroup& group) {
  int scale = byte_at(s, g) & 63;
  int minimum = byte_at(s, g + 4) & 63;
  if (g >= 4) {
    scale = (byte_at(s, g + 4) & 15) | (byte_at(s, g - 4) >> 6) << 4;
    minimum = (byte_at(s, g + 4) >> 4) | (byte_at(s, g) >> 6) << 4;
  }
  for (std::size_t sub = 0; sub < 2; ++sub) {
    group.sub_scale[sub] = static_cast<std::int8_t>(scale);
    group.sub_minimum[sub] = static_cast<std::int8_t>(minimum);
  }
}

constexpr std::uint16_t kSign = 0x8000;  // the packed minimum is added

// Of 64 values the low nibbles are the first 32.
void read_nibble_half(const std::byte* bytes, std::uint32_t g, std::uint8_t codes[32]) {
  for (std::size_t j = 0; j < 32; ++j) {
    const std::uint8_t both = byte_at(bytes, g / 2 * 32 + j);
    codes[j] = g % 2 == 0 ? both & 15 : both >> 4;
  }
}

StoredGroup read_q4_k(const std::byte* block, std::uint32_t g, bool fifth) {
  StoredGroup group;
  group.scale16 = word_at(block);
  group.minimum16 = word_at(block + 2) ^ kSign;
  read_six_bit_factors(block + 4, g, group);
  read_nibble_half(block + (fifth ? 48 : 16), g, group.codes);
  for (std::size_t j = 0; fifth && j < 32; ++j) {
    group.codes[j] =
        static_cast<std::uint8_t>(group.codes[j] | (byte_at(block, 16 + j) >> g & 1) << 4);
  }
  return group;
}

StoredGroup read_q6_k(const std::byte* block, std::uint32_t g) {
  StoredGroup group;
  group.scale16 = word_at(block + 208);
  const std::byte* low = block + g / 4 * 64 + g % 2 * 32;
  const std::byte* high = block + 128 + g / 4 * 32;
  const std::uint32_t part = g % 4;
  for (std::size_t j = 0; j < 32; ++j) {
    const int nibble = part < 2 ? byte_at(low, j) & 15 : byte_at(low, j) >> 4;
    group.codes[j] = static_cast<std::uint8_t>(nibble | (byte_at(high, j) >> part * 2 & 3) << 4);
  }
  for (std::size_t sub = 0; sub < 2; ++sub) {
    group.sub_scale[sub] = static_cast<std::int8_t>(block[192 + g * 2 + sub]);
  }
  return group;
}

StoredGroup read_q2_k(const std::byte* block, std::uint32_t g) {
  StoredGroup group;
  group.scale16 = word_at(block + 80);
  group.minimum16 = word_at(block + 82) ^ kSign;
  for (std::size_t j = 0; j < 32; ++j) {
    group.codes[j] = byte_at(block, 16 + g / 4 * 32 + j) >> g % 4 * 2 & 3;
  }
  for (std::size_t sub = 0; sub < 2; ++sub) {
    const std::uint8_t both = byte_at(block, g * 2 + sub);
    group.sub_scale[sub] = static_cast<std::int8_t>(both & 15);
    group.sub_minimum[sub] = static_cast<std::int8_t>(both >> 4);
  }
  return group;
}

// −4 … 3 in codes of q6_k.
StoredGroup read_q3_k(const std::byte* block, std::uint32_t g) {
  StoredGroup group;
  group.scale16 = word_at(block + 108);
  for (std::size_t j = 0; j < 32; ++j) {
    const int low = byte_at(block, 32 + g / 4 * 32 + j) >> g % 4 * 2 & 3;
    const bool high = (byte_at(block, j) >> g & 1) != 0;
    group.codes[j] = biased(low - (high ? 0 : 4), 32);
  }
  const std::byte* scales = block + 96;
  for (std::uint32_t sub = 0; sub < 2; ++sub) {
    const std::uint32_t i = g * 2 + sub;
    const int low = i < 8 ? byte_at(scales, i) & 15 : byte_at(scales, i - 8) >> 4;
    const int high = byte_at(scales, 8 + i % 4) >> i / 4 * 2 & 3;
    group.sub_scale[sub] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
  return group;
}

StoredGroup read_iq4_xs(const std::byte* block, std::uint32_t g) {
  StoredGroup group;
  const int low = byte_at(block, 4 + g / 2) >> g % 2 * 4 & 15;
  const int high = word_at(block + 2) >> g * 2 & 3;
  group.scale = half_to_float(word_at(block)) * static_cast<float>((low | high << 4) - 32);
  split_nibbles(block + 8 + g * 16, group.codes);
  look_up(kIq4, group.codes);
  return group;
}

StoredGroup read_affine(const RowFormat& format, std::uint32_t inputs, const std::byte* row,
                        std::uint32_t g) {
  StoredGroup group;
  // 32 codes begin at a byte whatever their width.
  const std::byte* codes = row + std::size_t{g} * 4 * format.bits;
  for (std::uint32_t j = 0; j < kGroupInputs; ++j) {
    const std::uint32_t bit = j * format.bits;
    unsigned window = byte_at(codes, bit / 8);
    if (bit % 8 + format.bits > 8)
      window |= static_cast<unsigned>(byte_at(codes, bit / 8 + 1)) << 8;
    group.codes[j] = static_cast<std::uint8_t>(window >> bit % 8 & ((1u << format.bits) - 1u));
  }
  const std::size_t size = layout_of(format.scale).block_bytes;
  const std::byte* scales = row + std::size_t{inputs} * format.bits / 8;
  const std::byte* minima = scales + inputs / format.group * size;
  const std::size_t at = g * kGroupInputs / format.group * size;
  if (size == 2) {
    group.scale16 = word_at(scales + at);
    group.minimum16 = word_at(minima + at);
  }
  group.scale = number_at(format.scale, scales + at);
  group.minimum = number_at(format.scale, minima + at);
  return group;
}

StoredGroup read_mxfp4_row(std::uint32_t inputs, const std::byte* row, std::uint32_t g) {
  StoredGroup group;
  for (std::size_t j = 0; j < kGroupInputs; ++j) {
    const std::uint8_t both = byte_at(row, g * 16 + j / 2);
    group.codes[j] = j % 2 == 0 ? both & 15 : both >> 4;
  }
  look_up(kTwiceE2m1, group.codes);
  group.scale = e8m0_half(byte_at(row, inputs / 2 + g));
  return group;
}

float e4m3(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t exponent = bits >> 3 & 15u;
  const std::uint32_t mantissa = bits & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
  }
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

}  // namespace

StoredGroup read_group(const RowFormat& format, std::uint32_t inputs, const std::byte* row,
                       std::uint32_t group) {
  if (format.dtype == Dtype::affine) return read_affine(format, inputs, row, group);
  if (format.dtype == Dtype::mxfp4_rows) return read_mxfp4_row(inputs, row, group);
  const DtypeLayout layout = layout_of(format.dtype);
  const std::uint32_t per_block = layout.block_values / kGroupInputs;
  const std::byte* block = row + std::size_t{group / per_block} * layout.block_bytes;
  const std::uint32_t g = group % per_block;
  switch (format.dtype) {
    case Dtype::q2_k: return read_q2_k(block, g);
    case Dtype::q3_k: return read_q3_k(block, g);
    case Dtype::q4_k: return read_q4_k(block, g, false);
    case Dtype::q5_k: return read_q4_k(block, g, true);
    case Dtype::q6_k: return read_q6_k(block, g);
    case Dtype::iq4_xs: return read_iq4_xs(block, g);
    default: return read_legacy(format.dtype, block);
  }
}

void read_numbers(const RowFormat& format, std::uint32_t inputs, const std::byte* row, float* out) {
  if (format.dtype == Dtype::f32) {
    std::memcpy(out, row, std::size_t{inputs} * sizeof(float));
    return;
  }
  const std::size_t size = layout_of(format.scale).block_bytes;
  for (std::uint32_t k = 0; k < inputs; ++k) {
    out[k] =
        e4m3(byte_at(row, k)) * number_at(format.scale, row + inputs + k / format.group * size);
  }
}

}  // namespace drafthouse
