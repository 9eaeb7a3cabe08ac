#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/hooks.h"
#include "drafthouse/status.h"
#include "kernels/kernels.h"

// What a hook is inside the host: the slot it replaces, whose it is, what it promises
// (include/drafthouse/hooks.h is the plugins' side of this).

namespace drafthouse {

// One operation that may be replaced: of matmul one format of weights and inputs, of attend_page
// and write_kv one format of pages. A small number; equal slots are the same operation.
class HookSlot {
 public:
  static constexpr std::size_t kCount = 27;

  // Products of other kinds cannot be replaced: version 1 of the hooks does not know their layout.
  static constexpr bool has_matmul(Dtype weights) { return weights <= Dtype::q4_1; }
  static constexpr HookSlot matmul(Dtype weights, ActKind inputs) {
    return HookSlot(static_cast<std::uint8_t>(static_cast<unsigned>(weights) * 3 +
                                              static_cast<unsigned>(inputs)));
  }
  static constexpr HookSlot attend_page(KvKind pages) { return of_pages(18, pages); }
  static constexpr HookSlot rms_norm() { return HookSlot(20); }
  static constexpr HookSlot silu_mul() { return HookSlot(21); }
  static constexpr HookSlot rope() { return HookSlot(22); }
  static constexpr HookSlot write_kv(KvKind pages) { return of_pages(23, pages); }
  static constexpr HookSlot argmax() { return HookSlot(25); }
  static constexpr HookSlot capture_tap() { return HookSlot(26); }
  // All slots that the engines use, in order.
  static std::vector<HookSlot> all();

  constexpr std::size_t index() const { return index_; }
  dh_hook_operation operation() const;
  // Of matmul; of attend_page and write_kv.
  Dtype weights() const { return static_cast<Dtype>(index_ / 3); }
  ActKind inputs() const { return static_cast<ActKind>(index_ % 3); }
  KvKind pages() const;
  // "matmul[q4_1,int8]", "attend_page[bf16]", "rms_norm".
  std::string name() const;

  // Whether every instruction set computes the same bits, so that an exact hook can be checked
  // alike on every machine.
  bool same_bits_everywhere() const;
  // Whether other bits than the kernel's make sense at all: copies and choices have one result.
  bool may_approximate() const;
  // Whether a call has several rows, so that a hook may serve some numbers of them.
  bool has_widths() const;

  friend constexpr bool operator==(HookSlot, HookSlot) = default;
  friend constexpr auto operator<=>(HookSlot, HookSlot) = default;

 private:
  static constexpr HookSlot of_pages(std::uint8_t first, KvKind pages) {
    return HookSlot(static_cast<std::uint8_t>(first + (pages == KvKind::f32 ? 1 : 0)));
  }
  explicit constexpr HookSlot(std::uint8_t index) : index_(index) {}

  std::uint8_t index_;
};

// Numbers of rows as bits: bit w for w rows, bit 63 for 63 and more.
struct HookWidths {
  std::uint64_t bits = 0;

  static constexpr HookWidths all() { return {~std::uint64_t{0}}; }
  bool is_all() const { return bits == all().bits; }
  bool has(std::uint32_t rows) const { return (bits >> std::min(rows, 63u) & 1) != 0; }
  friend bool operator==(HookWidths, HookWidths) = default;
};
// "all" or "1, 2, 8".
std::string text_of(HookWidths widths);

// A hook as somebody asks for it.
struct Hook {
  HookSlot slot = HookSlot::rms_norm();
  // With the function, the owner of the slot.
  std::string name = {};
  std::string version = {};
  dh_hook_function function = nullptr;
  bool exact = true;
  HookWidths widths = HookWidths::all();
  double error_bound = 0;  // of approximate hooks
  // Keeps the function's code loaded; null for code that stays anyway.
  std::shared_ptr<const void> library = {};

  // "name@version"
  std::string owner() const { return name + "@" + version; }
  // The same owner asking for the same thing.
  bool same_as(const Hook& other) const {
    return slot == other.slot && name == other.name && version == other.version &&
           function == other.function && exact == other.exact && widths == other.widths &&
           error_bound == other.error_bound;
  }
};

// What a plugin says about one hook, checked field by field; invalid_argument or unsupported.
Result<Hook> read_hook(const dh_hook& said);

// The part of the gate that needs no arithmetic: names, and what this slot's hooks may promise.
Status check_promise(const Hook& hook);

// The formats of hooks.h.
std::int32_t format_of(Dtype weights);
std::int32_t format_of(ActKind inputs);
std::int32_t format_of(KvKind pages);

// What replaces each slot, for the hot path: no function and no widths where nothing does.
struct HookEntry {
  dh_hook_function function = nullptr;
  HookWidths widths = {};
};
using HookTable = std::array<HookEntry, HookSlot::kCount>;

}  // namespace drafthouse
