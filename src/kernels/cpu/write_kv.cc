#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

void write_f32(std::uint32_t head_dim, std::uint32_t slot, const float* k, const float* v,
               std::byte* k_page, std::byte* v_page) {
  __builtin_memcpy(v_page + std::size_t{slot} * head_dim * 4, v, std::size_t{head_dim} * 4);
  for (std::size_t d = 0; d < head_dim; ++d) {
    __builtin_memcpy(k_page + (d * kPagePositions + slot) * 4, k + d, 4);
  }
}

// Writes the slot's bytes only: its neighbours may be read by others meanwhile.
void write_bf16(std::uint32_t head_dim, std::uint32_t slot, const float* k, const float* v,
                std::byte* k_page, std::byte* v_page) {
  std::byte* key_to = k_page + std::size_t{slot} * 4;
  std::byte* value_to = v_page + (std::size_t{slot / 2} * head_dim * 2 + slot % 2) * 2;
  for (std::uint32_t d = 0; d < head_dim; d += kLanes) {
    std::uint16_t key[kLanes];
    std::uint16_t value[kLanes];
    store_bf16(key, load(k + d));
    store_bf16(value, load(v + d));
    for (std::uint32_t i = 0; i < kLanes; i += 2) {
      __builtin_memcpy(key_to + std::size_t{d + i} / 2 * kPagePositions * 4, key + i, 4);
    }
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      __builtin_memcpy(value_to + std::size_t{d + i} * 4, value + i, 2);
    }
  }
}

}  // namespace

void to_bf16(std::uint16_t* out, const float* in, std::uint32_t count) {
  std::uint32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_bf16(out + i, load(in + i));
  if (i == count) return;
  std::uint16_t rest[kLanes];
  store_bf16(rest, load_first(in + i, count - i, splat(0.0f)));
  __builtin_memcpy(out + i, rest, std::size_t{count - i} * 2);
}

void write_kv(KvKind kind, std::uint32_t head_dim, std::uint32_t slot, const float* k,
              const float* v, std::byte* k_page, std::byte* v_page) {
  if (kind == KvKind::f32) {
    write_f32(head_dim, slot, k, v, k_page, v_page);
  } else {
    write_bf16(head_dim, slot, k, v, k_page, v_page);
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
