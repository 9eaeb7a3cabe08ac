#include "engine/engine_hooks.h"

namespace drafthouse {

Result<EngineHooks> bind_hooks(const EngineOptions& options, std::vector<EngineHook>& described) {
  HookRegistry& registry = HookRegistry::process();
  EngineHooks hooks;
  if (!options.hook_plugins.empty()) {
    Result<HookClaim> claim = registry.load_plugins(options.hook_plugins);
    if (!claim.ok()) return claim.status();
    hooks.claim = std::move(claim).value();
  }
  hooks.binding = registry.bind();
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
