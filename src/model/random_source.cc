#include <cmath>
#include <cstring>

#include "model/weight_source.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

// splitmix64: one multiply-xorshift per 8 bytes, addressable by position.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

float uniform(std::uint64_t bits) { return static_cast<float>(bits & 0xffffffu) * 0x1p-23f - 1.0f; }

void fill_random(std::uint64_t seed, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = mix(seed + i + 1);
    std::memcpy(out + i, &word, count - i < 8 ? count - i : 8);
  }
}

// Numbers of K blocks are super-scale × factor × code − super-minimum × factor, factors and codes
// uniform: near the middle of their range the mean is about zero.
struct KBlock {
  std::size_t scale_at;
  std::size_t minimum_at;  // 0: none
  float deviation;         // of factor × code
  float mean_code;         // over the mean factor; of the minimum
};

void fill_block(Dtype dtype, float scale, std::uint64_t seed, std::byte* out) {
  const auto put = [&](std::size_t at, std::uint16_t bits) { std::memcpy(out + at, &bits, 2); };
  const auto random_bytes = [&](std::size_t at, std::size_t count) {
    fill_random(seed, out + at, count);
  };
  const auto k_block = [&](const KBlock& k) {
    random_bytes(0, layout_of(dtype).block_bytes);
    put(k.scale_at, float_to_half(scale / k.deviation));
    if (k.minimum_at != 0) put(k.minimum_at, float_to_half(k.mean_code * scale / k.deviation));
  };
  // Codes that are one more below zero than above: signs at random make the mean zero. What all
  // rows have in common would make them choose the same experts.
  const float either = (mix(~seed) & 1) != 0 ? scale : -scale;
  switch (dtype) {
    case Dtype::q8_0:
      put(0, float_to_half(either / 73.0f));  // uniform bytes have a deviation of about 74
      random_bytes(2, 32);
      break;
    case Dtype::q4_0:
      put(0, float_to_half(either / 4.6f));
      random_bytes(2, 16);
      break;
    case Dtype::q4_1:
      put(0, float_to_half(scale / 4.6f));
      put(2, float_to_half(-7.5f * scale / 4.6f));
      random_bytes(4, 16);
      break;
    case Dtype::q5_0:
      put(0, float_to_half(either / 9.2f));
      random_bytes(2, 20);
      break;
    case Dtype::q5_1:
      put(0, float_to_half(scale / 9.2f));
      put(2, float_to_half(-15.5f * scale / 9.2f));
      random_bytes(4, 20);
      break;
    case Dtype::iq4_nl:
      put(0, float_to_half(either / 70.0f));
      random_bytes(2, 16);
      break;
    case Dtype::mxfp4: {
      const float exponent = std::floor(std::log2(scale / 3.0f)) + 127.0f;
      out[0] = static_cast<std::byte>(static_cast<std::uint8_t>(exponent));
      random_bytes(1, 16);
      break;
    }
    case Dtype::q2_k: k_block({80, 82, 15.0f, 1.5f}); break;
    case Dtype::q3_k: k_block({108, 0, 42.0f, 0.0f}); break;
    case Dtype::q4_k: k_block({0, 2, 310.0f, 7.5f}); break;
    case Dtype::q5_k: k_block({0, 2, 630.0f, 15.5f}); break;
    case Dtype::q6_k: k_block({208, 0, 1370.0f, 0.0f}); break;
    case Dtype::iq4_xs: k_block({0, 0, 1300.0f, 0.0f}); break;
    case Dtype::bf16: put(0, float_to_bf16(scale * 1.7f * uniform(mix(seed)))); break;
    case Dtype::f16: put(0, float_to_half(scale * 1.7f * uniform(mix(seed)))); break;
    default: {
      const float value = scale * 1.7f * uniform(mix(seed));
      std::memcpy(out, &value, 4);
    }
  }
}

// A row of codes and scales that lie apart.
void fill_row(const RowFormat& format, std::uint64_t inputs, float scale, std::uint64_t seed,
              std::span<std::byte> out) {
  const bool affine = format.dtype == Dtype::affine;
  const std::size_t codes = inputs * (affine ? format.bits : 4) / 8;
  fill_random(seed, out.data(), codes);
  if (!affine) {
    const float exponent = std::floor(std::log2(scale / 3.0f)) + 127.0f;
    std::memset(out.data() + codes, static_cast<std::uint8_t>(exponent), out.size() - codes);
    return;
  }
  // Uniform codes have a deviation of their number / sqrt(12), and a mean of half of it.
  const auto count = static_cast<float>(1u << format.bits);
  const float step = scale / (count * 0.29f);
  const std::size_t size = layout_of(format.scale).block_bytes;
  const std::size_t minima = codes + (out.size() - codes) / 2;
  for (std::size_t at = codes; at < out.size(); at += size) {
    const float value = at < minima ? step : -step * (count - 1.0f) / 2.0f;
    const std::uint16_t bits =
        format.scale == Dtype::bf16 ? float_to_bf16(value) : float_to_half(value);
    if (size == 4) std::memcpy(out.data() + at, &value, 4);
    if (size == 2) std::memcpy(out.data() + at, &bits, 2);
  }
}

}  // namespace

const TensorInfo* RandomSource::need(std::string_view name,
                                     const std::vector<std::uint64_t>& shape) const {
  if (const TensorInfo* known = find(name); known != nullptr) return known;
  // [channels, 1, taps] are the weights of a convolution, which no kernel takes in another form.
  const bool convolution = shape.size() == 3 && shape[1] == 1;
  TensorInfo info;
  info.name = info.file_name = name;
  info.dtype = Dtype::f32;
  if (shape.size() > 1 && !convolution) {
    info.dtype = format_.dtype;
    info.bits = format_.bits;
    info.group = format_.group;
    info.scale = format_.scale;
    if (shape.back() % group_inputs(format_) != 0) uneven_inputs_ = shape.back();
  }
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  info.shape = shape;
  info.offset = std::hash<std::string_view>{}(name);
  info.bytes = rows * row_bytes(info.row_format(), shape.back());
  return &(tensors_[info.name] = info);
}

const TensorInfo* RandomSource::find(std::string_view name) const {
  const auto found = tensors_.find(std::string(name));
  return found == tensors_.end() ? nullptr : &found->second;
}

Status RandomSource::read(const TensorInfo& tensor, std::uint64_t offset,
                          std::span<std::byte> out) const {
  const std::uint32_t block = layout_of(tensor.dtype).block_bytes;
  if (tensor.shape.size() == 1) {
    for (std::size_t i = 0; i + 4 <= out.size(); i += 4) {
      const float value = 1.0f + 0.1f * uniform(mix(tensor.offset + offset + i));
      std::memcpy(out.data() + i, &value, 4);
    }
    return {};
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(tensor.shape.back()));
  if (tensor.dtype == Dtype::affine || tensor.dtype == Dtype::mxfp4_rows) {
    const std::uint64_t row = row_bytes(tensor.row_format(), tensor.shape.back());
    for (std::size_t at = 0; at + row <= out.size(); at += row) {
      fill_row(tensor.row_format(), tensor.shape.back(), scale, tensor.offset + (offset + at) * 64,
               out.subspan(at, row));
    }
    return {};
  }
  for (std::size_t i = 0; i + block <= out.size(); i += block) {
    fill_block(tensor.dtype, scale, tensor.offset + (offset + i) * 64, out.data() + i);
  }
  return {};
}

}  // namespace drafthouse
