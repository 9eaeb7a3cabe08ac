#include "device/hook_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "device/hook_gate.h"
#include "device/hook_plugin.h"

namespace drafthouse {

HookClaim::~HookClaim() {
  if (registry_ != nullptr) registry_->drop_claims(slots_);
}

HookClaim::HookClaim(HookClaim&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)),
      slots_(std::exchange(other.slots_, {})),
      installed_(std::exchange(other.installed_, 0)) {}

HookClaim& HookClaim::operator=(HookClaim&& other) noexcept {
  HookClaim old(std::move(*this));
  registry_ = std::exchange(other.registry_, nullptr);
  slots_ = std::exchange(other.slots_, {});
  installed_ = std::exchange(other.installed_, 0);
  return *this;
}

Status HookClaim::release() {
  if (registry_ == nullptr) return {};
  if (Status s = registry_->release(slots_); !s.ok()) return s;
  registry_ = nullptr;
  slots_.clear();
  installed_ = 0;
  return {};
}

HookBinding::~HookBinding() { unbind(); }

HookBinding::HookBinding(HookBinding&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)), hooks_(std::exchange(other.hooks_, {})) {}

HookBinding& HookBinding::operator=(HookBinding&& other) noexcept {
  HookBinding old(std::move(*this));
  registry_ = std::exchange(other.registry_, nullptr);
  hooks_ = std::exchange(other.hooks_, {});
  return *this;
}

void HookBinding::unbind() {
  if (registry_ != nullptr) registry_->drop_bindings(hooks_);
  registry_ = nullptr;
  hooks_.clear();
}

HookTable HookBinding::table() const {
  HookTable table;
  for (const Hook& hook : hooks_) table[hook.slot.index()] = {hook.function, hook.widths};
  return table;
}

std::string HookBinding::digest_text() const {
  std::vector<std::string> parts;
  for (const Hook& hook : hooks_) {
    if (!hook.exact) parts.push_back(hook.slot.name() + "=" + hook.owner());
  }
  std::sort(parts.begin(), parts.end());
  return fmt::format("{}", fmt::join(parts, ";"));
}

HookRegistry& HookRegistry::process() {
  static auto* const registry = new HookRegistry;
  return *registry;
}

Status HookRegistry::find_conflict(const std::vector<Hook>& hooks) const {
  for (const Hook& hook : hooks) {
    const std::optional<InstalledHook>& taken = at(hook.slot);
    if (!taken.has_value() || taken->hook.same_as(hook)) continue;
    std::string how;
    if (taken->hook.owner() == hook.owner()) {
      how = taken->hook.function == hook.function ? " with another promise"
                                                  : " with another function";
    }
    return Status(
        Code::conflict,
        fmt::format("HookConflict: {} belongs to {} ({} claims, used by {} engines), and {} "
                    "asked for it{}; nothing of that load was installed. Give the first "
                    "back or load only one of them",
                    hook.slot.name(), taken->hook.owner(), taken->claims, taken->bindings,
                    hook.owner(), how));
  }
  return {};
}

Result<HookClaim> HookRegistry::claim(std::vector<Hook> hooks) {
  std::sort(hooks.begin(), hooks.end(),
            [](const Hook& a, const Hook& b) { return a.slot < b.slot; });
  for (std::size_t i = 0; i < hooks.size(); ++i) {
    if (Status s = check_promise(hooks[i]); !s.ok()) return s;
    if (i == 0 || hooks[i].slot != hooks[i - 1].slot) continue;
    return Status(
        Code::conflict,
        fmt::format("HookConflict: {} is claimed twice in one load, by {} and {}; nothing "
                    "of it was installed",
                    hooks[i].slot.name(), hooks[i - 1].owner(), hooks[i].owner()));
  }
  std::vector<bool> passed(hooks.size());
  for (;;) {
    // The gate runs without the lock, for those that would be installed and have not passed it yet.
    std::vector<std::size_t> untested;
    {
      const std::lock_guard lock(mutex_);
      if (Status s = find_conflict(hooks); !s.ok()) return s;
      for (std::size_t i = 0; i < hooks.size(); ++i) {
        if (!at(hooks[i].slot).has_value() && !passed[i]) untested.push_back(i);
      }
      if (untested.empty()) {
        std::vector<HookSlot> slots;
        std::size_t installed = 0;
        for (const Hook& hook : hooks) {
          std::optional<InstalledHook>& slot = at(hook.slot);
          if (!slot.has_value()) {
            slot = InstalledHook{.hook = hook};
            ++installed;
          }
          ++slot->claims;
          slots.push_back(hook.slot);
        }
        return HookClaim(*this, std::move(slots), installed);
      }
    }
    for (const std::size_t i : untested) {
      if (Status s = check_hook(hooks[i]); !s.ok()) return s;
      passed[i] = true;
    }
  }
}

Result<HookClaim> HookRegistry::load_plugins(std::span<const std::string> paths) {
  std::vector<Hook> hooks;
  for (const std::string& path : paths) {
    Result<std::vector<Hook>> read = read_plugin(path);
    if (!read.ok()) return read.status();
    for (Hook& hook : read.value()) {
      // The same plugin named twice is one plugin.
      const auto same = [&hook](const Hook& other) { return other.same_as(hook); };
      if (std::none_of(hooks.begin(), hooks.end(), same)) hooks.push_back(std::move(hook));
    }
  }
  return claim(std::move(hooks));
}

HookBinding HookRegistry::bind() {
  HookBinding binding;
  binding.registry_ = this;
  const std::lock_guard lock(mutex_);
  for (std::optional<InstalledHook>& slot : slots_) {
    if (!slot.has_value() || slot->claims == 0) continue;
    binding.hooks_.push_back(slot->hook);
    ++slot->bindings;
  }
  return binding;
}

std::vector<InstalledHook> HookRegistry::installed() const {
  std::vector<InstalledHook> list;
  const std::lock_guard lock(mutex_);
  for (const std::optional<InstalledHook>& slot : slots_) {
    if (slot.has_value()) list.push_back(*slot);
  }
  return list;
}

Status HookRegistry::release(const std::vector<HookSlot>& slots) {
  std::vector<Hook> freed;
  const std::lock_guard lock(mutex_);
  for (const HookSlot slot : slots) {
    const InstalledHook& taken = *at(slot);
    if (taken.claims > 1 || taken.bindings == 0) continue;
    return Status(Code::busy, fmt::format("{} of {} is used by {} engines; unload them first",
                                          slot.name(), taken.hook.owner(), taken.bindings));
  }
  for (const HookSlot slot : slots) {
    --at(slot)->claims;
    freed.push_back(free_if_unused(at(slot)));
  }
  return {};
}

void HookRegistry::drop_claims(const std::vector<HookSlot>& slots) {
  std::vector<Hook> freed;
  const std::lock_guard lock(mutex_);
  for (const HookSlot slot : slots) {
    --at(slot)->claims;
    freed.push_back(free_if_unused(at(slot)));
  }
}

void HookRegistry::drop_bindings(const std::vector<Hook>& hooks) {
  std::vector<Hook> freed;
  const std::lock_guard lock(mutex_);
  for (const Hook& hook : hooks) {
    --at(hook.slot)->bindings;
    freed.push_back(free_if_unused(at(hook.slot)));
  }
}

Hook HookRegistry::free_if_unused(std::optional<InstalledHook>& slot) {
  if (slot->claims > 0 || slot->bindings > 0) return {};
  Hook hook = std::move(slot->hook);
  slot.reset();
  return hook;
}

}  // namespace drafthouse
