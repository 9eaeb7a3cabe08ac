/* Products and attention in other arithmetic than the host's: sums in double, the library's exp. A
 * row's bits depend on the row alone, so every width agrees. */

#include <math.h>
#include <stddef.h>

#include "drafthouse/hooks.h"

static void multiply(const void* data) {
  const dh_hook_matmul_job* job = data;
  const uint32_t first = job->block_begin * 16;
  const uint32_t end =
      job->block_end * 16 < job->output_count ? job->block_end * 16 : job->output_count;
  for (uint32_t o = first; o < end; ++o) {
    for (uint32_t row = 0; row < job->rows; ++row) {
      double sum = 0;
      for (uint32_t k = 0; k < job->input_count; ++k) {
        sum += (double)dh_hook_input(job, row, k) * (double)dh_hook_weight(job, o, k);
      }
      float* out = job->out + row * job->out_stride + o;
      *out = job->accumulate ? *out + (float)sum : (float)sum;
    }
  }
}

static void attend_query(const dh_hook_attend_page_job* job, uint32_t q) {
  const uint32_t first = job->first[q];
  const uint32_t last = job->last[q];
  float p[64];
  float m = job->m[q];
  for (uint32_t slot = first; slot < last; ++slot) {
    double dot = 0;
    for (uint32_t d = 0; d < job->head_dim; ++d) {
      dot += (double)dh_hook_query(job, q, d) * (double)dh_hook_key(job, slot, d);
    }
    p[slot] = job->scale * (float)dot;
    m = fmaxf(m, p[slot]);
  }
  const float shrink = expf(job->m[q] - m);
  double sum = 0;
  for (uint32_t slot = first; slot < last; ++slot) sum += (double)(p[slot] = expf(p[slot] - m));
  job->m[q] = m;
  job->l[q] = job->l[q] * shrink + (float)sum;
  for (uint32_t d = 0; d < job->head_dim; ++d) {
    float* acc = job->acc + (size_t)q * job->head_dim + d;
    double value = (double)(*acc * shrink);
    for (uint32_t slot = first; slot < last; ++slot) {
      value += (double)p[slot] * (double)dh_hook_value(job, slot, d);
    }
    *acc = (float)value;
  }
}

static void attend(const void* data) {
  const dh_hook_attend_page_job* job = data;
  for (uint32_t q = 0; q < job->queries; ++q) {
    if (job->first[q] < job->last[q]) attend_query(job, q);
  }
}

static const dh_hook product = {.size = sizeof(dh_hook),
                                .operation = DH_HOOK_MATMUL,
                                .weights = DH_HOOK_BF16,
                                .inputs = DH_HOOK_BF16,
                                .promise = DH_HOOK_APPROXIMATE,
                                .error_bound = 0x1p-14,
                                .function = multiply};
static const dh_hook attention = {.size = sizeof(dh_hook),
                                  .operation = DH_HOOK_ATTEND_PAGE,
                                  .pages = DH_HOOK_BF16,
                                  .promise = DH_HOOK_APPROXIMATE,
                                  .error_bound = 0x1p-14,
                                  .function = attend};
static const dh_hook* const hooks[] = {&product, &attention};

static const dh_hook_plugin_info info = {.size = sizeof(dh_hook_plugin_info),
                                         .abi_version = DH_HOOK_ABI_VERSION,
                                         .name = {"test-doubles", 12},
                                         .version = {"1.0", 3},
                                         .hooks = hooks,
                                         .hook_count = 2};

const dh_hook_plugin_info* dh_hook_plugin(uint32_t host_abi_version) {
  return host_abi_version == DH_HOOK_ABI_VERSION ? &info : NULL;
}
