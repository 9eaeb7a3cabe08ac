#include "device/hooked_kernels.h"

namespace drafthouse {

void HookedKernels::call_matmul(dh_hook_function hook, const MatmulJob& job) {
  const dh_hook_matmul_job passed{
      .size = sizeof passed,
      .weights = format_of(job.weights.kind),
      .inputs = format_of(job.act),
      .output_count = job.weights.outputs,
      .input_count = job.weights.inputs,
      .weight_data = job.weights.data,
      .block_begin = job.block_begin,
      .block_end = job.block_end,
      .x = job.x,
      .rows = job.rows,
      .accumulate = job.accumulate ? 1 : 0,
      .out = job.out,
      .out_stride = job.out_stride,
  };
  hook(&passed);
}

void HookedKernels::call_attend_page(dh_hook_function hook, const AttendPageJob& job) {
  const dh_hook_attend_page_job passed{
      .size = sizeof passed,
      .pages = format_of(job.kind),
      .head_dim = job.head_dim,
      .queries = job.queries,
      .scale = job.scale,
      .q = job.q,
      .k = job.k,
      .v = job.v,
      .first = job.first,
      .last = job.last,
      .m = job.m,
      .l = job.l,
      .acc = job.acc,
  };
  hook(&passed);
}

}  // namespace drafthouse
