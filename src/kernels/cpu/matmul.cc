#include "kernels/cpu/matmul_driver.h"

namespace drafthouse::DRAFTHOUSE_ISA {

void matmul(const MatmulJob& job) {
  switch (job.act) {
    case ActKind::f32: matmul_f32(job); return;
    case ActKind::bf16: matmul_bf16(job); return;
    case ActKind::int8: matmul_int8(job); return;
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
