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

float uniform(std::uint64_t bits) {
  return static_cast<float>(bits & 0xffffffu) * 0x1p-23f - 1.0f;
}

void fill_block(Dtype dtype, float scale, std::uint64_t seed, std::byte* out) {
  const auto put = [&](std::size_t at, std::uint16_t bits) { std::memcpy(out + at, &bits, 2); };
  const auto random_bytes = [&](std::size_t at, std::size_t count) {
    for (std::size_t i = 0; i < count; i += 8) {
      const std::uint64_t word = mix(seed + i + 1);
      std::memcpy(out + at + i, &word, 8);
    }
  };
  switch (dtype) {
    case Dtype::q8_0:
      put(0, float_to_half(scale / 73.0f));  // uniform bytes have a deviation of about 74
      random_bytes(2, 32);
      break;
    case Dtype::q4_0:
      put(0, float_to_half(scale / 4.6f));
      random_bytes(2, 16);
      break;
    case Dtype::q4_1:
      put(0, float_to_half(scale / 4.6f));
      put(2, float_to_half(-7.5f * scale / 4.6f));
      random_bytes(4, 16);
      break;
    case Dtype::bf16: put(0, float_to_bf16(scale * 1.7f * uniform(mix(seed)))); break;
    case Dtype::f16: put(0, float_to_half(scale * 1.7f * uniform(mix(seed)))); break;
    default: {
      const float value = scale * 1.7f * uniform(mix(seed));
      std::memcpy(out, &value, 4);
    }
  }
}

}  // namespace

const TensorInfo* RandomSource::need(std::string_view name,
                                     const std::vector<std::uint64_t>& shape) const {
  if (const TensorInfo* known = find(name); known != nullptr) return known;
  // [channels, 1, taps] are the weights of a convolution, which no kernel takes in another form.
  const bool convolution = shape.size() == 3 && shape[1] == 1;
  const Dtype dtype = shape.size() == 1 || convolution ? Dtype::f32 : format_;
  TensorInfo info;
  info.name = info.file_name = name;
  info.dtype = dtype;
  std::uint64_t values = 1;
  for (const std::uint64_t extent : shape) values *= extent;
  info.shape = shape;
  info.offset = std::hash<std::string_view>{}(name);
  info.bytes = values / layout_of(dtype).block_values * layout_of(dtype).block_bytes;
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
  for (std::size_t i = 0; i + block <= out.size(); i += block) {
    fill_block(tensor.dtype, scale, tensor.offset + (offset + i) * 64, out.data() + i);
  }
  return {};
}

}  // namespace drafthouse
