#include "engine/engine_hooks.h"

namespace drafthouse {

Result<HookClaim> claim_hook_plugins(std::span<const std::string> paths) {
  if (paths.empty()) return HookClaim();
  return HookRegistry::process().load_plugins(paths);
}

Result<EngineHooks> bind_hooks(const EngineOptions& options, std::vector<EngineHook>& described) {
  EngineHooks hooks;
  Result<HookClaim> claim = claim_hook_plugins(options.hook_plugins);
  if (!claim.ok()) return claim.status();
  hooks.claim = std::move(claim).value();
  hooks.binding = HookRegistry::process().bind();
  described.clear();
  for (const Hook& hook : hooks.binding.hooks()) {
    described.push_back({.operation = hook.slot.name(),
                         .name = hook.name,
                         .version = hook.version,
                         .exact = hook.exact,
                         .widths = text_of(hook.widths)});
  }
  return hooks;
}

}  // namespace drafthouse
