#include "device/hook_gate.h"

#include <fmt/format.h>

namespace drafthouse {
namespace gate {

Status refusal(const Hook& hook, const std::string& what) {
  return Status(Code::invalid_argument,
                fmt::format("{} by {} is refused: declared {}, but it {}", hook.slot.name(),
                            hook.owner(), hook.exact ? "exact" : "approximate", what));
}

std::vector<std::uint32_t> tried_widths(const Hook& hook, std::uint32_t most) {
  std::vector<std::uint32_t> widths;
  for (std::uint32_t width = 1; width <= most; ++width) {
    if (!hook.widths.has(width)) continue;
    // Of all widths, those around the sizes that kernels are built from.
    const bool telling = width <= 20 || (width % 16 + 1) % 16 <= 2 || width == 62;
    if (!hook.widths.is_all() || telling) widths.push_back(width);
  }
  return widths;
}

}  // namespace gate

Status check_hook(const Hook& hook) {
  if (Status s = check_promise(hook); !s.ok()) return s;
  HookTable table;
  table[hook.slot.index()] = {hook.function, hook.widths};
  const HookedKernels run(kernels_for(Isa::generic), table);
  switch (hook.slot.operation()) {
    case DH_HOOK_MATMUL: return gate::check_matmul(hook, run);
    case DH_HOOK_ATTEND_PAGE: return gate::check_attend_page(hook, run);
    case DH_HOOK_RMS_NORM: return gate::check_rms_norm(hook, run);
    case DH_HOOK_SILU_MUL: return gate::check_silu_mul(hook, run);
    case DH_HOOK_ROPE: return gate::check_rope(hook, run);
    case DH_HOOK_WRITE_KV: return gate::check_write_kv(hook, run);
    case DH_HOOK_ARGMAX: return gate::check_argmax(hook, run);
    case DH_HOOK_CAPTURE_TAP: return gate::check_capture_tap(hook, run);
  }
  return Status(Code::unsupported, hook.slot.name() + " has no gate");
}

}  // namespace drafthouse
