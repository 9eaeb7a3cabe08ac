#include "device/hook_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace drafthouse {
namespace {

// No plugin can have more: a slot is claimed once.
constexpr std::size_t kHooksMax = HookSlot::kCount;

std::string text_of(dh_hook_text text) {
  // One byte more than a name may have is enough to have it refused.
  return text.data == nullptr ? std::string()
                              : std::string(text.data, std::min<std::size_t>(text.length, 65));
}

std::string loader_error() {
  const char* text = dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
  return text != nullptr ? text : "unknown error";
}

}  // namespace

Result<std::vector<Hook>> read_plugin(const std::string& path) {
  if (path.empty() || path.front() != '/') {
    return Status(
        Code::invalid_argument,
        fmt::format("the hook plugin \"{}\" is not named by an absolute path; plugins are "
                    "never searched for",
                    path));
  }
  struct stat file = {};
  if (stat(path.c_str(), &file) == 0 && !S_ISREG(file.st_mode)) {
    return Status(Code::invalid_argument,
                  fmt::format("the hook plugin {} is no file; name a shared library", path));
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Status(Code::not_found, fmt::format("there is no readable hook plugin {}", path));
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status(Code::unsupported,
                  fmt::format("{} cannot be loaded as a hook plugin: {}", path, loader_error()));
  }
  const std::shared_ptr<const void> library(
      handle, [](const void* loaded) { dlclose(const_cast<void*>(loaded)); });

  using Entry = const dh_hook_plugin_info* (*)(std::uint32_t);
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "dh_hook_plugin"));
  if (entry == nullptr) {
    return Status(Code::unsupported,
                  fmt::format("{} exports no dh_hook_plugin(), so it is no hook plugin", path));
  }
  const dh_hook_plugin_info* info = entry(DH_HOOK_ABI_VERSION);
  if (info == nullptr) {
    return Status(Code::unsupported,
                  fmt::format("{} says that it does not run here: another hook ABI than {}, or not "
                              "on this machine",
                              path, DH_HOOK_ABI_VERSION));
  }
  if (info->abi_version != DH_HOOK_ABI_VERSION || info->size < sizeof(dh_hook_plugin_info)) {
    return Status(Code::unsupported,
                  fmt::format("{} is made for hook ABI {} ({} bytes), this host has {} ({} bytes): "
                              "build it with this host's hooks.h",
                              path, info->abi_version, info->size, DH_HOOK_ABI_VERSION,
                              sizeof(dh_hook_plugin_info)));
  }
  if (info->hook_count == 0 || info->hook_count > kHooksMax || info->hooks == nullptr) {
    return Status(Code::invalid_argument, fmt::format("{} tells of {} hooks; 1 to {} are possible",
                                                      path, info->hook_count, kHooksMax));
  }
  std::vector<Hook> hooks;
  for (std::size_t i = 0; i < info->hook_count; ++i) {
    if (info->hooks[i] == nullptr) {
      return Status(Code::invalid_argument, fmt::format("{}: hook {} is null", path, i));
    }
    Result<Hook> hook = read_hook(*info->hooks[i]);
    if (!hook.ok()) {
      return Status(hook.status().code(), fmt::format("{}: {}", path, hook.status().message()));
    }
    hook.value().name = text_of(info->name);
    hook.value().version = text_of(info->version);
    hook.value().library = library;
    hooks.push_back(std::move(hook).value());
  }
  return hooks;
}

}  // namespace drafthouse
