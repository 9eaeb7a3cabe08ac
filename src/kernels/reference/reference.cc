#include "kernels/reference/reference.h"

namespace drafthouse {

const Kernels& reference_kernels() {
  static constexpr Kernels kKernels{
      .pack_activations = reference::pack_activations,
      .matmul = reference::matmul,
      .rms_norm = reference::rms_norm,
      .silu_mul = reference::silu_mul,
      .gelu_mul = reference::gelu_mul,
      .clamped_silu_mul = reference::clamped_silu_mul,
      .softcap = reference::softcap,
      .softmax = reference::softmax,
      .gated_rms_norm = reference::gated_rms_norm,
      .l2_norm = reference::l2_norm,
      .sigmoid_mul = reference::sigmoid_mul,
      .multiply = reference::multiply,
      .short_conv = reference::short_conv,
      .delta_gates = reference::delta_gates,
      .delta_rows = reference::delta_rows,
      .delta_fold = reference::delta_fold,
      .rope = reference::rope,
      .to_bf16 = reference::to_bf16,
      .write_kv = reference::write_kv,
      .attend_page = reference::attend_page,
      .merge_spans = reference::merge_spans,
      .argmax = reference::argmax,
      .log_sum_exp = reference::log_sum_exp,
      .group_maxima = reference::group_maxima,
      .group_weights = reference::group_weights,
      .weights = reference::weights,
      .peak_float = reference::peak_float,
      .peak_int8 = reference::peak_int8,
      .read_bytes = reference::read_bytes,
  };
  return kKernels;
}

}  // namespace drafthouse
