#pragma once

#include <cstring>

#include "device/hook.h"
#include "kernels/kernels.h"

namespace drafthouse {

// The kernels of one instruction set with an engine's hooks in place of some: a table of its own,
// so that what is claimed or released later changes nothing here. Called like Kernels. An operation
// that is not replaced costs one branch more; one that is, the filling of a small struct.
// Immutable, so any thread may call it.
class HookedKernels : public Kernels {
 public:
  explicit HookedKernels(const Kernels& original, const HookTable& hooks = {})
      : Kernels(original), original_(original), hooks_(hooks) {}

  // What probes of the machine use, hooks or not.
  const Kernels& original() const { return original_; }

  void matmul(const MatmulJob& job) const {
    if (!HookSlot::has_matmul(job.weights.kind)) return Kernels::matmul(job);
    const HookEntry& hook = entry(HookSlot::matmul(job.weights.kind, job.act));
    if (hook.widths.has(job.rows)) [[unlikely]]
      return call_matmul(hook.function, job);
    Kernels::matmul(job);
  }
  void attend_page(const AttendPageJob& job) const {
    const HookEntry& hook = entry(HookSlot::attend_page(job.kind));
    if (hook.widths.has(job.queries)) [[unlikely]]
      return call_attend_page(hook.function, job);
    Kernels::attend_page(job);
  }
  void rms_norm(float* out, const float* in, const float* gain, std::uint32_t width,
                float eps) const {
    if (const auto hook = entry(HookSlot::rms_norm()).function; hook != nullptr) [[unlikely]] {
      const dh_hook_rms_norm_job job{sizeof job, out, in, gain, width, eps};
      return hook(&job);
    }
    Kernels::rms_norm(out, in, gain, width, eps);
  }
  void silu_mul(float* out, const float* gate, const float* up, std::uint32_t width) const {
    if (const auto hook = entry(HookSlot::silu_mul()).function; hook != nullptr) [[unlikely]] {
      const dh_hook_silu_mul_job job{sizeof job, out, gate, up, width};
      return hook(&job);
    }
    Kernels::silu_mul(out, gate, up, width);
  }
  void rope(float* head, const float* cos, const float* sin, std::uint32_t half) const {
    if (const auto hook = entry(HookSlot::rope()).function; hook != nullptr) [[unlikely]] {
      const dh_hook_rope_job job{sizeof job, head, cos, sin, half};
      return hook(&job);
    }
    Kernels::rope(head, cos, sin, half);
  }
  void write_kv(KvKind kind, std::uint32_t head_dim, std::uint32_t slot, const float* k,
                const float* v, std::byte* k_page, std::byte* v_page) const {
    if (const auto hook = entry(HookSlot::write_kv(kind)).function; hook != nullptr) [[unlikely]] {
      const dh_hook_write_kv_job job{sizeof job, format_of(kind), head_dim, slot, k,
                                     v,          k_page,          v_page};
      return hook(&job);
    }
    Kernels::write_kv(kind, head_dim, slot, k, v, k_page, v_page);
  }
  std::uint32_t argmax(const float* values, std::uint32_t count) const {
    if (const auto hook = entry(HookSlot::argmax()).function; hook != nullptr) [[unlikely]] {
      std::uint32_t index = 0;
      const dh_hook_argmax_job job{sizeof job, values, count, &index};
      hook(&job);
      return index;
    }
    return Kernels::argmax(values, count);
  }
  // out[r] = stream[r], `width` floats; strides in floats.
  void capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                   std::uint32_t width, float* out, std::size_t out_stride) const {
    const HookEntry& hook = entry(HookSlot::capture_tap());
    if (hook.widths.has(rows)) [[unlikely]] {
      const dh_hook_capture_tap_job job{sizeof job, stream, stream_stride, rows,
                                        width,      out,    out_stride};
      return hook.function(&job);
    }
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(out + row * out_stride, stream + row * stream_stride, width * sizeof(float));
    }
  }

 private:
  static void call_matmul(dh_hook_function hook, const MatmulJob& job);
  static void call_attend_page(dh_hook_function hook, const AttendPageJob& job);
  const HookEntry& entry(HookSlot slot) const { return hooks_[slot.index()]; }

  const Kernels& original_;
  HookTable hooks_;
};

}  // namespace drafthouse
