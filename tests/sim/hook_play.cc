#include "tests/sim/hook_play.h"

#include <algorithm>
#include <utility>

namespace drafthouse {
namespace {

void rope_as_it_is(const void* job) {
  const auto& j = *static_cast<const dh_hook_rope_job*>(job);
  kernels_for(Isa::generic).rope(j.head, j.cos, j.sin, j.half);
}

void argmax_as_it_is(const void* job) {
  const auto& j = *static_cast<const dh_hook_argmax_job*>(job);
  *j.index = kernels_for(Isa::generic).argmax(j.values, j.count);
}

std::string state(const std::vector<InstalledHook>& all) {
  std::string text;
  for (const InstalledHook& each : all) {
    text += each.hook.slot.name() + "=" + each.hook.owner() + "*" + std::to_string(each.claims) +
            "/" + std::to_string(each.bindings) + " ";
  }
  return text;
}

}  // namespace

const InstalledHook* HookPlay::owner_of(const std::vector<InstalledHook>& all,
                                        HookSlot slot) const {
  const auto place = std::find_if(all.begin(), all.end(),
                                  [slot](const auto& each) { return each.hook.slot == slot; });
  return place == all.end() ? nullptr : &*place;
}

std::string HookPlay::claim() {
  std::vector<Hook> hooks;
  Held held;
  held.owner = random_.percent(70) ? "one" : "two";
  for (const HookSlot slot : {HookSlot::rope(), HookSlot::argmax()}) {
    if (random_.percent(40)) continue;
    hooks.push_back({.slot = slot,
                     .name = held.owner,
                     .version = "1",
                     .function = slot == HookSlot::rope() ? rope_as_it_is : argmax_as_it_is});
    held.slots.push_back(slot);
  }
  if (hooks.empty()) return {};
  const std::vector<InstalledHook> before = registry_.installed();
  const bool free = std::all_of(hooks.begin(), hooks.end(), [&](const Hook& hook) {
    const InstalledHook* there = owner_of(before, hook.slot);
    return there == nullptr || there->hook.same_as(hook);
  });
  Result<HookClaim> made = registry_.claim(hooks);
  if (made.ok() != free) return "a hook claim that should not have ended so";
  if (!made.ok()) {
    ++conflicts_;
    if (made.status().code() != Code::conflict) return "a hook conflict under another name";
    return state(registry_.installed()) == state(before) ? "" : "a refused claim left a hook";
  }
  held.claim = std::move(made).value();
  held_.push_back(std::move(held));
  return {};
}

std::string HookPlay::give_back() {
  if (held_.empty()) return {};
  const auto place = held_.begin() + random_.below(static_cast<std::uint32_t>(held_.size()));
  const std::vector<InstalledHook> before = registry_.installed();
  const bool in_use = std::any_of(place->slots.begin(), place->slots.end(), [&](HookSlot slot) {
    const InstalledHook* there = owner_of(before, slot);
    return there != nullptr && there->claims == 1 && there->bindings > 0;
  });
  const Status status = place->claim.release();
  if (in_use) {
    ++busy_;
    if (status.code() != Code::busy) return "a hook that is in use was given back";
    if (state(registry_.installed()) != state(before)) return "a refused release changed something";
    if (random_.percent(50)) return {};
  } else if (!status.ok()) {
    return "a hook that nobody uses was not given back: " + status.message();
  }
  held_.erase(place);
  return {};
}

std::string HookPlay::act() { return random_.percent(60) ? claim() : give_back(); }

std::string HookPlay::check(const std::vector<const HookBinding*>& bound) const {
  for (const InstalledHook& each : registry_.installed()) {
    std::uint32_t claims = 0;
    for (const Held& held : held_) {
      if (std::find(held.slots.begin(), held.slots.end(), each.hook.slot) == held.slots.end()) {
        continue;
      }
      ++claims;
      if (held.owner != each.hook.name) return "a slot has two owners";
    }
    std::uint32_t bindings = 0;
    for (const HookBinding* binding : bound) {
      for (const Hook& hook : binding->hooks()) {
        if (hook.slot == each.hook.slot) {
          ++bindings;
          if (!hook.same_as(each.hook)) return "an engine's hook was replaced under it";
        }
      }
    }
    if (claims != each.claims || bindings != each.bindings) return "hooks are miscounted";
    if (claims == 0 && bindings == 0) return "a hook that nobody holds is still there";
  }
  return {};
}

std::string HookPlay::close() {
  held_.clear();
  return registry_.installed().empty() ? "" : "a hook is left";
}

}  // namespace drafthouse
