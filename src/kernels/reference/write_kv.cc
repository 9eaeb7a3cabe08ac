#include <cstring>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace drafthouse::reference {

void to_bf16(std::uint16_t* out, const float* in, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) out[i] = float_to_bf16(in[i]);
}

void write_kv(KvKind kind, std::uint32_t head_dim, std::uint32_t slot, const float* k,
              const float* v, std::byte* k_page, std::byte* v_page) {
  for (std::size_t d = 0; d < head_dim; ++d) {
    if (kind == KvKind::f32) {
      std::memcpy(k_page + (d * kPagePositions + slot) * 4, k + d, 4);
      std::memcpy(v_page + (slot * std::size_t{head_dim} + d) * 4, v + d, 4);
    } else {
      const std::uint16_t key = float_to_bf16(k[d]);
      const std::uint16_t value = float_to_bf16(v[d]);
      std::memcpy(k_page + ((d / 2 * kPagePositions + slot) * 2 + d % 2) * 2, &key, 2);
      std::memcpy(v_page + ((slot / 2 * std::size_t{head_dim} + d) * 2 + slot % 2) * 2, &value, 2);
    }
  }
}

}  // namespace drafthouse::reference
