#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/hook.h"
#include "drafthouse/status.h"

namespace drafthouse {

class HookRegistry;

// Somebody's hold on the hooks of one load. Dropping it gives the hooks back: at once, or when the
// last engine that uses them goes. Move-only; confined to whoever holds it.
class HookClaim {
 public:
  HookClaim() = default;
  ~HookClaim();
  HookClaim(HookClaim&& other) noexcept;
  HookClaim& operator=(HookClaim&& other) noexcept;

  // Hooks that took a free slot by this claim, and those whose owner had it already.
  std::size_t installed() const { return installed_; }
  std::size_t repeated() const { return slots_.size() - installed_; }

  // Gives the hooks back now. The last claim of a slot restores the original operation. busy, and
  // nothing changes, when that is still used by an engine; the message names slot and owner.
  Status release();

 private:
  friend class HookRegistry;
  HookClaim(HookRegistry& registry, std::vector<HookSlot> slots, std::size_t installed)
      : registry_(&registry), slots_(std::move(slots)), installed_(installed) {}

  HookRegistry* registry_ = nullptr;
  std::vector<HookSlot> slots_;
  std::size_t installed_ = 0;
};

// The hooks that one engine took at its load; while this lives they stay, and nothing else changes
// in it. Move-only; reading is free for all threads.
class HookBinding {
 public:
  HookBinding() = default;
  ~HookBinding();
  HookBinding(HookBinding&& other) noexcept;
  HookBinding& operator=(HookBinding&& other) noexcept;

  const std::vector<Hook>& hooks() const { return hooks_; }  // ascending by slot
  // For HookedKernels.
  HookTable table() const;
  // What the state digest must know: "slot=name@version" of every approximate hook, sorted, joined
  // with ';'. Empty when all bits are those of the built-in kernels.
  std::string digest_text() const;

 private:
  friend class HookRegistry;
  void unbind();

  HookRegistry* registry_ = nullptr;
  std::vector<Hook> hooks_;
};

// A slot that is taken.
struct InstalledHook {
  Hook hook;
  std::uint32_t claims = 0;    // 0: given back, and gone with the last engine that uses it
  std::uint32_t bindings = 0;  // engines
};

// Who has replaced which operation of the process's engines. A slot has one owner: name, version
// and function. Thread-safe; a claim is one step, whose hooks are installed all or none. Claims and
// bindings must not outlive it.
class HookRegistry {
 public:
  HookRegistry() = default;
  HookRegistry(const HookRegistry&) = delete;
  HookRegistry& operator=(const HookRegistry&) = delete;

  // The one that engines bind. Never destroyed.
  static HookRegistry& process();

  // Claims every hook's slot. A free slot is taken once the gate has passed the hook; the same
  // owner asking again is counted and changes nothing. conflict: a slot has another owner, or the
  // same name with another function, version or promise; found before the gate runs anything, and
  // the message names both. Otherwise what the gate says (invalid_argument, unsupported). After a
  // failure everything is as before. Engines that are loaded already are not affected.
  Result<HookClaim> claim(std::vector<Hook> hooks);

  // Claims the hooks of plugins (shared libraries at absolute paths, hooks.h) as one load. A
  // library stays loaded while a hook of it is installed or bound. Runs the plugins' code.
  Result<HookClaim> load_plugins(std::span<const std::string> paths);
  Result<HookClaim> load_plugin(const std::string& path) { return load_plugins({&path, 1}); }

  // Takes a reference on every hook that is claimed now.
  HookBinding bind();

  // Ascending by slot.
  std::vector<InstalledHook> installed() const;

 private:
  friend class HookClaim;
  friend class HookBinding;
  using Slots = std::array<std::optional<InstalledHook>, HookSlot::kCount>;

  Status find_conflict(const std::vector<Hook>& hooks) const;  // with the lock
  std::optional<InstalledHook>& at(HookSlot slot) { return slots_[slot.index()]; }
  const std::optional<InstalledHook>& at(HookSlot slot) const { return slots_[slot.index()]; }
  Status release(const std::vector<HookSlot>& slots);
  void drop_claims(const std::vector<HookSlot>& slots);
  void drop_bindings(const std::vector<Hook>& hooks);
  // Frees a slot that nobody holds. The hook comes back to be destroyed without the lock, as its
  // library may be unloaded with it.
  Hook free_if_unused(std::optional<InstalledHook>& slot);

  mutable std::mutex mutex_;
  Slots slots_;
};

}  // namespace drafthouse
