// The gate: what it lets through, and that its verdict does not depend on the instruction set.

#include "device/hook_gate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace drafthouse {
namespace {

// Built-in kernels behind the plugins' interface. The kernels in question are set before a check.
const Kernels* tested = nullptr;

Dtype weights_of(std::int32_t format) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::q4_0}) {
    if (format_of(dtype) == format) return dtype;
  }
  return Dtype::q4_1;
}
ActKind inputs_of(std::int32_t format) {
  return format == DH_HOOK_F32    ? ActKind::f32
         : format == DH_HOOK_BF16 ? ActKind::bf16
                                  : ActKind::int8;
}
KvKind pages_of(std::int32_t format) { return format == DH_HOOK_F32 ? KvKind::f32 : KvKind::bf16; }

MatmulJob job_of(const void* job) {
  const auto& said = *static_cast<const dh_hook_matmul_job*>(job);
  return {.weights = {weights_of(said.weights), said.output_count, said.input_count,
                      static_cast<const std::byte*>(said.weight_data)},
          .block_begin = said.block_begin,
          .block_end = said.block_end,
          .act = inputs_of(said.inputs),
          .x = static_cast<const std::byte*>(said.x),
          .rows = said.rows,
          .out = said.out,
          .out_stride = said.out_stride,
          .accumulate = said.accumulate != 0};
}
AttendPageJob page_of(const void* job) {
  const auto& said = *static_cast<const dh_hook_attend_page_job*>(job);
  return {.kind = pages_of(said.pages),
          .head_dim = said.head_dim,
          .queries = said.queries,
          .q = said.q,
          .k = static_cast<const std::byte*>(said.k),
          .v = static_cast<const std::byte*>(said.v),
          .first = said.first,
          .last = said.last,
          .scale = said.scale,
          .m = said.m,
          .l = said.l,
          .acc = said.acc};
}

void matmul(const void* job) { tested->matmul(job_of(job)); }
void attend_page(const void* job) { tested->attend_page(page_of(job)); }
void rms_norm(const void* job) {
  const auto& j = *static_cast<const dh_hook_rms_norm_job*>(job);
  tested->rms_norm(j.out, j.in, j.gain, j.width, j.eps);
}
void silu_mul(const void* job) {
  const auto& j = *static_cast<const dh_hook_silu_mul_job*>(job);
  tested->silu_mul(j.out, j.gate, j.up, j.width);
}
void rope(const void* job) {
  const auto& j = *static_cast<const dh_hook_rope_job*>(job);
  tested->rope(j.head, j.cos, j.sin, j.half);
}
void write_kv(const void* job) {
  const auto& j = *static_cast<const dh_hook_write_kv_job*>(job);
  tested->write_kv(pages_of(j.pages), j.head_dim, j.slot, j.k, j.v,
                   static_cast<std::byte*>(j.k_page), static_cast<std::byte*>(j.v_page));
}
void argmax(const void* job) {
  const auto& j = *static_cast<const dh_hook_argmax_job*>(job);
  *j.index = tested->argmax(j.values, j.count);
}
void capture_tap(const void* job) {
  const auto& j = *static_cast<const dh_hook_capture_tap_job*>(job);
  for (std::size_t row = 0; row < j.rows; ++row) {
    std::memcpy(j.out + row * j.out_stride, j.stream + row * j.stream_stride, j.width * 4);
  }
}

Hook builtin(HookSlot slot) {
  const auto function = [&]() -> dh_hook_function {
    switch (slot.operation()) {
      case DH_HOOK_MATMUL: return matmul;
      case DH_HOOK_ATTEND_PAGE: return attend_page;
      case DH_HOOK_RMS_NORM: return rms_norm;
      case DH_HOOK_SILU_MUL: return silu_mul;
      case DH_HOOK_ROPE: return rope;
      case DH_HOOK_WRITE_KV: return write_kv;
      case DH_HOOK_ARGMAX: return argmax;
      case DH_HOOK_CAPTURE_TAP: return capture_tap;
    }
    return nullptr;
  };
  return {.slot = slot, .name = "builtin", .version = "1", .function = function()};
}

Hook approximate(HookSlot slot, dh_hook_function function, double bound = 0x1p-8) {
  return {.slot = slot,
          .name = "rough",
          .version = "1",
          .function = function,
          .exact = false,
          .error_bound = bound};
}

class EveryIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
    tested = &kernels_for(GetParam());
  }
};

// Where exact hooks are allowed, the verdict is the same on every machine because the bits are.
TEST_P(EveryIsa, KernelsAreExactWhereExactHooksAreAllowed) {
  for (const HookSlot slot : HookSlot::all()) {
    const Status status = check_hook(builtin(slot));
    if (slot.same_bits_everywhere()) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_EQ(status.code(), Code::unsupported) << slot.name();
    }
  }
}

TEST_P(EveryIsa, KernelsAreWithinTheBoundsOfApproximateHooks) {
  for (const HookSlot slot : HookSlot::all()) {
    const Hook hook = approximate(slot, builtin(slot).function);
    const Status status = check_hook(hook);
    if (slot.may_approximate()) {
      EXPECT_TRUE(status.ok()) << status.message();
    } else {
      EXPECT_EQ(status.code(), Code::unsupported) << slot.name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, EveryIsa,
                         testing::ValuesIn(built_isas().begin(), built_isas().end()),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

TEST(HookGate, TheReferenceIsApproximatelyItself) {
  tested = &reference_kernels();
  for (const HookSlot slot : HookSlot::all()) {
    if (!slot.may_approximate()) continue;
    const bool rounds = slot == HookSlot::attend_page(KvKind::bf16);
    const Status status = check_hook(
        approximate(slot, builtin(slot).function, rounds ? 0x1p-8 : DH_HOOK_ERROR_BOUND_MIN));
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

constexpr HookSlot kProduct = HookSlot::matmul(Dtype::q8_0, ActKind::int8);

// A product that is wrong in one way.
template <class Change>
void changed_matmul(const void* job, Change&& change) {
  MatmulJob work = job_of(job);
  kernels_for(Isa::generic).matmul(work);
  change(work);
}
void last_bit_of_row_five(const void* job) {
  changed_matmul(job, [](const MatmulJob& work) {
    if (work.rows <= 5) return;
    float& out = work.out[5 * work.out_stride + work.block_begin * kBlockOutputs];
    out = std::nextafter(out, 1e30f);
  });
}
void twice_as_much(const void* job) {
  changed_matmul(job, [](const MatmulJob& work) {
    const std::uint32_t end = std::min(work.weights.outputs, work.block_end * kBlockOutputs);
    for (std::uint32_t row = 0; row < work.rows; ++row) {
      for (std::uint32_t o = work.block_begin * kBlockOutputs; o < end; ++o) {
        work.out[row * work.out_stride + o] *= 2;
      }
    }
  });
}
void past_the_end(const void* job) {
  changed_matmul(job, [](const MatmulJob& work) {
    work.out[(work.rows - 1) * work.out_stride + work.weights.outputs] = 0;
  });
}
void into_the_inputs(const void* job) {
  changed_matmul(job,
                 [](const MatmulJob& work) { const_cast<std::byte*>(work.x)[0] ^= std::byte{1}; });
}
// Each row right, but with bits that depend on how many there are.
void rough_in_company(const void* job) {
  changed_matmul(job, [](const MatmulJob& work) {
    if (work.rows == 1) return;
    float& out = work.out[work.block_begin * kBlockOutputs];
    out = std::nextafter(out, 1e30f);
  });
}

void expect_refused(const Hook& hook, Code code, std::string_view word) {
  const Status status = check_hook(hook);
  ASSERT_FALSE(status.ok()) << word;
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(hook.slot.name()), std::string::npos) << status.message();
}

Hook product(dh_hook_function function) {
  return {.slot = kProduct, .name = "test", .version = "1", .function = function};
}

TEST(HookGate, OneBitOfOneRowIsEnoughToRefuse) {
  expect_refused(product(last_bit_of_row_five), Code::invalid_argument, "other bits");
  Hook narrow = product(last_bit_of_row_five);
  narrow.widths = {0b11110};  // 1 to 4 rows, which it gets right
  EXPECT_TRUE(check_hook(narrow).ok());
}

TEST(HookGate, RefusesWhatTouchesMoreThanItsOutputs) {
  expect_refused(product(past_the_end), Code::invalid_argument, "outside");
  expect_refused(product(into_the_inputs), Code::invalid_argument, "outside");
}

TEST(HookGate, ApproximateKeepsItsBoundAndItsBitsAtEveryWidth) {
  expect_refused(approximate(kProduct, twice_as_much), Code::invalid_argument, "bound");
  expect_refused(approximate(kProduct, rough_in_company), Code::invalid_argument, "than alone");
}

TEST(HookGate, PromisesThatNoArithmeticCanKeep) {
  tested = &kernels_for(Isa::generic);
  Hook some = approximate(kProduct, matmul);
  some.widths = {0b10};
  expect_refused(some, Code::unsupported, "must serve all");
  expect_refused(approximate(kProduct, matmul, 0.5), Code::invalid_argument, "bound");
  expect_refused(approximate(kProduct, matmul, 0), Code::invalid_argument, "bound");
  expect_refused(approximate(HookSlot::argmax(), argmax), Code::unsupported, "one result");
  Hook bounded = product(matmul);
  bounded.error_bound = 0x1p-9;
  expect_refused(bounded, Code::invalid_argument, "no error bound");
  Hook nameless = product(matmul);
  nameless.name = "two words";
  expect_refused(nameless, Code::invalid_argument, "name");
  Hook row = builtin(HookSlot::rope());
  row.widths = {0b10};
  expect_refused(row, Code::invalid_argument, "one row");
  expect_refused(product(nullptr), Code::invalid_argument, "no function");
}

TEST(HookedKernels, WidthsThatAreNotServedGoToTheOriginal) {
  HookTable table;
  table[HookSlot::capture_tap().index()] = {[](const void* job) {
                                              const auto& j =
                                                  *static_cast<const dh_hook_capture_tap_job*>(job);
                                              j.out[0] = 42;
                                            },
                                            HookWidths{0b100}};
  const HookedKernels kernels(kernels_for(Isa::generic), table);
  const float in[] = {1, 2, 3};
  for (const std::uint32_t rows : {1u, 2u, 3u}) {
    float out[3] = {};
    kernels.capture_tap(in, 1, rows, 1, out, 1);
    EXPECT_EQ(out[0], rows == 2 ? 42.0f : 1.0f) << rows << " rows";
  }
}

}  // namespace
}  // namespace drafthouse
