/* Plugins that a host must not take. What is wrong is a macro of the build. */

#include <math.h>
#include <stddef.h>

#include "drafthouse/hooks.h"

static void turn(const void* data) {
  const dh_hook_rope_job* job = data;
  for (uint32_t i = 0; i < job->half; ++i) {
    const float a = job->head[i];
    const float b = job->head[i + job->half];
    job->head[i] = fmaf(a, job->cos[i], -(b * job->sin[i]));
    job->head[i + job->half] = fmaf(b, job->cos[i], a * job->sin[i]);
  }
}

static void multiply(const void* data) {
  const dh_hook_matmul_job* job = data;
  const uint32_t groups = dh_hook_padded_inputs(job->input_count) / 32;
  for (uint32_t row = 0; row < job->rows; ++row) {
    for (uint32_t o = job->block_begin * 16; o < job->block_end * 16 && o < job->output_count;
         ++o) {
      float acc = 0.0f;
      for (uint32_t group = 0; group < groups; ++group) {
        int32_t sum = 0;
        for (uint32_t k = group * 32; k < group * 32 + 32; ++k) {
          sum += dh_hook_weight_code(job, o, k) * dh_hook_input_code(job, row, k);
        }
#if defined(WRONG_RESULTS)
        /* Rounded once more than the kernel does: a last bit now and then. */
        acc += (float)sum *
               (dh_hook_weight_scale(job, o, group) * dh_hook_input_scale(job, row, group));
#else
        acc = fmaf((float)sum,
                   dh_hook_weight_scale(job, o, group) * dh_hook_input_scale(job, row, group), acc);
#endif
      }
      float* out = job->out + row * job->out_stride + o;
      *out = job->accumulate ? *out + acc : acc;
    }
  }
}

#if defined(APPROXIMATE_FOR_ONE_WIDTH)
static const uint32_t widths[] = {1};
#endif

static const dh_hook rotation = {
    .size = sizeof(dh_hook), .operation = DH_HOOK_ROPE, .promise = DH_HOOK_EXACT, .function = turn};
static const dh_hook product = {.size = sizeof(dh_hook),
                                .operation = DH_HOOK_MATMUL,
                                .weights = DH_HOOK_Q8_0,
                                .inputs = DH_HOOK_INT8,
#if defined(APPROXIMATE_FOR_ONE_WIDTH)
                                .promise = DH_HOOK_APPROXIMATE,
                                .widths = widths,
                                .width_count = 1,
                                .error_bound = 0x1p-14,
#else
                                .promise = DH_HOOK_EXACT,
#endif
                                .function = multiply};
static const dh_hook* const hooks[] = {&rotation, &product};

static const dh_hook_plugin_info info = {.size = sizeof(dh_hook_plugin_info),
#if defined(OTHER_ABI)
                                         .abi_version = DH_HOOK_ABI_VERSION + 1,
#else
                                         .abi_version = DH_HOOK_ABI_VERSION,
#endif
                                         .name = {"test-other", 10},
                                         .version = {"1.0", 3},
                                         .hooks = hooks,
                                         .hook_count = 2};

#if defined(NO_ENTRY)
DH_HOOK_EXPORT const dh_hook_plugin_info* another_name(void);
const dh_hook_plugin_info* another_name(void) { return &info; }
#else
const dh_hook_plugin_info* dh_hook_plugin(uint32_t host_abi_version) {
  (void)host_abi_version;
  return &info;
}
#endif
