#include "kernels/kernels.h"

namespace drafthouse {

namespace generic {
extern const Kernels kKernels;
}
#if DRAFTHOUSE_X86
namespace avx2 {
extern const Kernels kKernels;
}
namespace avxvnni {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx512bf16 {
extern const Kernels kKernels;
}
#endif

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
#if DRAFTHOUSE_X86
    case Isa::avx2: return avx2::kKernels;
    case Isa::avxvnni: return avxvnni::kKernels;
    case Isa::avx512: return avx512::kKernels;
    case Isa::avx512bf16: return avx512bf16::kKernels;
#endif
    default: return generic::kKernels;
  }
}

}  // namespace drafthouse
