#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reference/reference.h"
#include "tensor/half.h"

namespace drafthouse::reference {
namespace {

float load_bf16(const void* data, std::size_t index) {
  std::uint16_t bits;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * 2, 2);
  return bf16_to_float(bits);
}

float load_f32(const void* data, std::size_t index) {
  float value;
  std::memcpy(&value, static_cast<const std::byte*>(data) + index * 4, 4);
  return value;
}

float query(const AttendPageJob& job, std::size_t q, std::size_t d) {
  const std::size_t index = q * job.head_dim + d;
  return job.kind == KvKind::f32 ? load_f32(job.q, index) : load_bf16(job.q, index);
}

float key(const AttendPageJob& job, std::size_t slot, std::size_t d) {
  if (job.kind == KvKind::f32) return load_f32(job.k, d * kPagePositions + slot);
  return load_bf16(job.k, (d / 2 * kPagePositions + slot) * 2 + d % 2);
}

float value(const AttendPageJob& job, std::size_t slot, std::size_t d) {
  if (job.kind == KvKind::f32) return load_f32(job.v, slot * job.head_dim + d);
  return load_bf16(job.v, (slot / 2 * job.head_dim + d) * 2 + slot % 2);
}

void attend_query(const AttendPageJob& job, std::uint32_t q) {
  const std::uint32_t first = job.first[q];
  const std::uint32_t last = job.last[q];

  float p[kPagePositions];
  float max = -std::numeric_limits<float>::infinity();
  for (std::uint32_t slot = first; slot < last; ++slot) {
    float dot = 0.0f;
    for (std::uint32_t d = 0; d < job.head_dim; ++d) {
      dot = std::fma(query(job, q, d), key(job, slot, d), dot);
    }
    p[slot] = job.scale * dot;
    max = std::fmax(max, p[slot]);
  }

  const float m = std::fmax(job.m[q], max);
  const float c = std::exp(job.m[q] - m);
  float sum = 0.0f;
  for (std::uint32_t slot = first; slot < last; ++slot) {
    p[slot] = std::exp(p[slot] - m);
    sum += p[slot];
    if (job.kind == KvKind::bf16) p[slot] = bf16_to_float(float_to_bf16(p[slot]));
  }
  job.m[q] = m;
  job.l[q] = std::fma(job.l[q], c, sum);
  for (std::uint32_t d = 0; d < job.head_dim; ++d) {
    float& acc = job.acc[std::size_t{q} * job.head_dim + d];
    acc *= c;
    for (std::uint32_t slot = first; slot < last; ++slot) {
      acc = std::fma(p[slot], value(job, slot, d), acc);
    }
  }
}

}  // namespace

void attend_page(const AttendPageJob& job) {
  for (std::uint32_t q = 0; q < job.queries; ++q) {
    if (job.first[q] < job.last[q]) attend_query(job, q);
  }
}

}  // namespace drafthouse::reference
