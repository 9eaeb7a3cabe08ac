#include "kernels/cpu/isa_ops.h"

namespace drafthouse::DRAFTHOUSE_ISA {

extern const Kernels kKernels;

const Kernels kKernels{
    .pack_activations = pack_activations,
    .matmul = matmul,
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .clamped_silu_mul = clamped_silu_mul,
    .softcap = softcap,
    .softmax = softmax,
    .gated_rms_norm = gated_rms_norm,
    .l2_norm = l2_norm,
    .sigmoid_mul = sigmoid_mul,
    .multiply = multiply,
    .short_conv = short_conv,
    .delta_gates = delta_gates,
    .delta_rows = delta_rows,
    .delta_fold = delta_fold,
    .rope = rope,
    .to_bf16 = to_bf16,
    .write_kv = write_kv,
    .attend_page = attend_page,
    .merge_spans = merge_spans,
    .argmax = argmax,
    .log_sum_exp = log_sum_exp,
    .group_maxima = group_maxima,
    .group_weights = group_weights,
    .weights = weights,
    .peak_float = peak_float,
    .peak_int8 = peak_int8,
    .read_bytes = read_bytes,
};

}  // namespace drafthouse::DRAFTHOUSE_ISA
