#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/hook_registry.h"
#include "drafthouse/engine.h"

namespace drafthouse {

// Claims the hooks of plugins before any engine loads, all of them or none; they are given back
// with the claim.
Result<HookClaim> claim_hook_plugins(std::span<const std::string> paths);

// What an engine holds of the process's hooks. The binding goes first, so that a claim which this
// engine brought is given back when nothing of it is used here.
struct EngineHooks {
  HookClaim claim;
  HookBinding binding;
};

// Claims the hooks of options.hook_plugins, all of them or none, and binds whatever is installed
// then. `described` is filled with what was bound.
Result<EngineHooks> bind_hooks(const EngineOptions& options, std::vector<EngineHook>& described);

}  // namespace drafthouse
