#pragma once

#include "kernels/kernels.h"

// The functions behind reference_kernels(): one per member of struct Kernels, of the same name.
namespace drafthouse::reference {

void pack_activations(ActKind kind, const float* in, std::size_t in_stride, std::uint32_t rows,
                      std::uint32_t inputs, std::byte* tile);
void matmul(const MatmulJob& job);

void rms_norm(float* out, const float* in, const float* gain, std::uint32_t width, float eps);
void silu_mul(float* out, const float* gate, const float* up, std::uint32_t width);
void gelu_mul(float* out, const float* gate, const float* up, std::uint32_t width);
void clamped_silu_mul(float* out, const float* gate, const float* up, std::uint32_t width,
                      float alpha, float limit);
void softcap(float* values, std::uint32_t count, float cap);
void softmax(float* values, std::uint32_t count);
void gated_rms_norm(float* out, const float* in, const float* gain, const float* gate,
                    std::uint32_t width, float eps);
void l2_norm(float* out, const float* in, std::uint32_t width, float eps, float scale);
void sigmoid_mul(float* out, const float* gate, const float* in, std::uint32_t width);
void multiply(float* out, const float* a, const float* b, std::uint32_t width);
void short_conv(const ShortConvJob& job);
void delta_gates(float* decay, float* beta, const float* a, const float* b, const float* a_log,
                 const float* dt_bias, std::uint32_t heads);
void delta_rows(const DeltaRowsJob& job);
void delta_fold(const DeltaChunk& chunk, float* next);
void rope(float* head, const float* cos, const float* sin, std::uint32_t half);
void to_bf16(std::uint16_t* out, const float* in, std::uint32_t count);
void write_kv(KvKind kind, std::uint32_t head_dim, std::uint32_t slot, const float* k,
              const float* v, std::byte* k_page, std::byte* v_page);
void attend_page(const AttendPageJob& job);
void merge_spans(float* m, float* l, float* acc, float m2, float l2, const float* acc2,
                 std::uint32_t head_dim);
std::uint32_t argmax(const float* values, std::uint32_t count);
double log_sum_exp(const float* values, std::uint32_t count);
void group_maxima(const float* values, std::uint32_t count, float* maxima);
void group_weights(const float* values, std::uint32_t count, float shift, float scale, float* sums);
void weights(const float* values, std::uint32_t count, float shift, float scale, float* out);

std::uint64_t peak_float(std::uint64_t iterations);
std::uint64_t peak_int8(std::uint64_t iterations);
std::uint64_t read_bytes(const std::byte* data, std::size_t bytes);

}  // namespace drafthouse::reference
