#include "device/hook.h"

#include <fmt/format.h>

#include <optional>

namespace drafthouse {
namespace {

constexpr std::size_t kNameMax = 64;

bool is_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-+").find(c) != std::string_view::npos;
  };
  return !text.empty() && text.size() <= kNameMax && std::all_of(text.begin(), text.end(), plain);
}

std::optional<Dtype> weights_of(std::int32_t format) {
  for (const Dtype dtype :
       {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::q4_0, Dtype::q4_1}) {
    if (format_of(dtype) == format) return dtype;
  }
  return std::nullopt;
}
std::optional<ActKind> inputs_of(std::int32_t format) {
  for (const ActKind act : {ActKind::f32, ActKind::bf16, ActKind::int8}) {
    if (format_of(act) == format) return act;
  }
  return std::nullopt;
}
std::optional<KvKind> pages_of(std::int32_t format) {
  for (const KvKind kind : {KvKind::bf16, KvKind::f32}) {
    if (format_of(kind) == format) return kind;
  }
  return std::nullopt;
}

std::optional<HookSlot> slot_of(const dh_hook& said) {
  switch (said.operation) {
    case DH_HOOK_MATMUL: {
      const std::optional<Dtype> weights = weights_of(said.weights);
      const std::optional<ActKind> inputs = inputs_of(said.inputs);
      if (!weights.has_value() || !inputs.has_value()) return std::nullopt;
      const bool used = *inputs == ActKind::f32 || *inputs == act_kind_for(*weights, false);
      return used ? std::optional(HookSlot::matmul(*weights, *inputs)) : std::nullopt;
    }
    case DH_HOOK_ATTEND_PAGE:
    case DH_HOOK_WRITE_KV: {
      const std::optional<KvKind> pages = pages_of(said.pages);
      if (!pages.has_value()) return std::nullopt;
      return said.operation == DH_HOOK_ATTEND_PAGE ? HookSlot::attend_page(*pages)
                                                   : HookSlot::write_kv(*pages);
    }
    case DH_HOOK_RMS_NORM: return HookSlot::rms_norm();
    case DH_HOOK_SILU_MUL: return HookSlot::silu_mul();
    case DH_HOOK_ROPE: return HookSlot::rope();
    case DH_HOOK_ARGMAX: return HookSlot::argmax();
    case DH_HOOK_CAPTURE_TAP: return HookSlot::capture_tap();
    default: return std::nullopt;
  }
}

std::string_view name_of(ActKind act) {
  switch (act) {
    case ActKind::f32: return "f32";
    case ActKind::bf16: return "bf16";
    case ActKind::int8: return "int8";
  }
  return "";
}

Status wrong(std::string what) { return Status(Code::invalid_argument, std::move(what)); }

}  // namespace

std::vector<HookSlot> HookSlot::all() {
  std::vector<HookSlot> slots;
  for (const Dtype weights :
       {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0, Dtype::q4_0, Dtype::q4_1}) {
    slots.push_back(matmul(weights, ActKind::f32));
    const ActKind act = act_kind_for(weights, false);
    if (act != ActKind::f32) slots.push_back(matmul(weights, act));
  }
  for (std::uint8_t index = 18; index < kCount; ++index) slots.push_back(HookSlot(index));
  return slots;
}

dh_hook_operation HookSlot::operation() const {
  constexpr dh_hook_operation kOperations[] = {
      DH_HOOK_ATTEND_PAGE, DH_HOOK_ATTEND_PAGE, DH_HOOK_RMS_NORM, DH_HOOK_SILU_MUL,   DH_HOOK_ROPE,
      DH_HOOK_WRITE_KV,    DH_HOOK_WRITE_KV,    DH_HOOK_ARGMAX,   DH_HOOK_CAPTURE_TAP};
  return index_ < 18 ? DH_HOOK_MATMUL : kOperations[index_ - 18];
}

KvKind HookSlot::pages() const { return index_ == 19 || index_ == 24 ? KvKind::f32 : KvKind::bf16; }

std::string HookSlot::name() const {
  const std::string_view format = pages() == KvKind::f32 ? "f32" : "bf16";
  switch (operation()) {
    case DH_HOOK_MATMUL:
      return fmt::format("matmul[{},{}]", drafthouse::name_of(weights()), name_of(inputs()));
    case DH_HOOK_ATTEND_PAGE: return fmt::format("attend_page[{}]", format);
    case DH_HOOK_RMS_NORM: return "rms_norm";
    case DH_HOOK_SILU_MUL: return "silu_mul";
    case DH_HOOK_ROPE: return "rope";
    case DH_HOOK_WRITE_KV: return fmt::format("write_kv[{}]", format);
    case DH_HOOK_ARGMAX: return "argmax";
    case DH_HOOK_CAPTURE_TAP: return "capture_tap";
  }
  return "";
}

bool HookSlot::same_bits_everywhere() const {
  // One instruction set multiplies bf16 pairs with VDPBF16PS, which rounds in its own way.
  if (operation() == DH_HOOK_MATMUL) return inputs() != ActKind::bf16;
  return *this != attend_page(KvKind::bf16);
}

bool HookSlot::may_approximate() const {
  switch (operation()) {
    case DH_HOOK_WRITE_KV:
    case DH_HOOK_ARGMAX:
    case DH_HOOK_CAPTURE_TAP: return false;
    default: return true;
  }
}

bool HookSlot::has_widths() const {
  switch (operation()) {
    case DH_HOOK_MATMUL:
    case DH_HOOK_ATTEND_PAGE:
    case DH_HOOK_CAPTURE_TAP: return true;
    default: return false;
  }
}

std::string text_of(HookWidths widths) {
  if (widths.is_all()) return "all";
  std::string text;
  for (std::uint32_t width = 1; width <= DH_HOOK_WIDTH_MAX; ++width) {
    if (widths.has(width)) text += fmt::format("{}{}", text.empty() ? "" : ", ", width);
  }
  return text;
}

Result<Hook> read_hook(const dh_hook& said) {
  if (said.size < sizeof(dh_hook)) {
    return wrong(
        fmt::format("a hook's size is {}, but dh_hook has {} bytes: set it to "
                    "sizeof(dh_hook)",
                    said.size, sizeof(dh_hook)));
  }
  const std::optional<HookSlot> slot = slot_of(said);
  if (!slot.has_value()) {
    return Status(
        Code::unsupported,
        fmt::format("no operation {} with weights {}, inputs {}, pages {} can be replaced; "
                    "hooks.h lists what can",
                    said.operation, said.weights, said.inputs, said.pages));
  }
  Hook hook;
  hook.slot = *slot;
  hook.function = said.function;
  hook.exact = said.promise == DH_HOOK_EXACT;
  hook.error_bound = said.error_bound;
  if (said.function == nullptr) return wrong(hook.slot.name() + ": the hook has no function");
  if (said.promise != DH_HOOK_EXACT && said.promise != DH_HOOK_APPROXIMATE) {
    return wrong(fmt::format("{}: promise {} is neither exact nor approximate", hook.slot.name(),
                             said.promise));
  }
  if (said.width_count == 0) return hook;
  if (said.widths == nullptr || said.width_count > DH_HOOK_WIDTH_MAX) {
    return wrong(fmt::format("{}: a list of {} widths; it may have {}, or none for all",
                             hook.slot.name(), said.width_count, DH_HOOK_WIDTH_MAX));
  }
  hook.widths = {};
  for (std::size_t i = 0; i < said.width_count; ++i) {
    const std::uint32_t width = said.widths[i];
    if (width == 0 || width > DH_HOOK_WIDTH_MAX) {
      return wrong(fmt::format("{}: width {} is not from 1 to {}", hook.slot.name(), width,
                               DH_HOOK_WIDTH_MAX));
    }
    hook.widths.bits |= std::uint64_t{1} << width;
  }
  return hook;
}

Status check_promise(const Hook& hook) {
  const std::string slot = hook.slot.name();
  if (!is_word(hook.name) || !is_word(hook.version)) {
    return wrong(
        fmt::format("a hook of {} needs a name and a version of 1 to {} letters, digits or "
                    ". _ - +",
                    slot, kNameMax));
  }
  if (hook.function == nullptr) return wrong(slot + ": the hook has no function");
  const std::string who = fmt::format("{} by {}", slot, hook.owner());
  if (!hook.widths.is_all() && !hook.slot.has_widths()) {
    return wrong(
        fmt::format("{}: this operation works on one row, so a hook serves it whole", who));
  }
  if (hook.exact) {
    if (hook.error_bound != 0) {
      return wrong(fmt::format("{}: an exact hook has no error bound", who));
    }
    if (hook.slot.same_bits_everywhere()) return {};
    return Status(
        Code::unsupported,
        fmt::format("{}: the built-in kernels of different instruction sets give different "
                    "bits here, so exactness cannot be checked alike on every machine; "
                    "declare the hook approximate",
                    who));
  }
  if (!hook.slot.may_approximate()) {
    return Status(Code::unsupported,
                  fmt::format("{}: copies and choices have one result; only an exact hook can "
                              "replace them",
                              who));
  }
  if (!hook.widths.is_all()) {
    return Status(
        Code::unsupported,
        fmt::format("{}: an approximate hook that serves only widths {} would let a row's "
                    "bits depend on the width; it must serve all",
                    who, text_of(hook.widths)));
  }
  if (!(hook.error_bound >= DH_HOOK_ERROR_BOUND_MIN &&
        hook.error_bound <= DH_HOOK_ERROR_BOUND_MAX)) {
    return wrong(fmt::format("{}: error bound {} is not from {} to {}", who, hook.error_bound,
                             DH_HOOK_ERROR_BOUND_MIN, DH_HOOK_ERROR_BOUND_MAX));
  }
  return {};
}

std::int32_t format_of(Dtype weights) {
  switch (weights) {
    case Dtype::f32: return DH_HOOK_F32;
    case Dtype::f16: return DH_HOOK_F16;
    case Dtype::bf16: return DH_HOOK_BF16;
    case Dtype::q8_0: return DH_HOOK_Q8_0;
    case Dtype::q4_0: return DH_HOOK_Q4_0;
    case Dtype::q4_1: return DH_HOOK_Q4_1;
    default: return 0;
  }
}

std::int32_t format_of(ActKind inputs) {
  switch (inputs) {
    case ActKind::f32: return DH_HOOK_F32;
    case ActKind::bf16: return DH_HOOK_BF16;
    case ActKind::int8: return DH_HOOK_INT8;
  }
  return 0;
}

std::int32_t format_of(KvKind pages) { return pages == KvKind::f32 ? DH_HOOK_F32 : DH_HOOK_BF16; }

}  // namespace drafthouse
