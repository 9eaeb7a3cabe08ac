#pragma once

#include <string>
#include <vector>

#include "device/hook.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Loads the shared library at an absolute path (RTLD_NOW, RTLD_LOCAL) and reads the hooks that its
// dh_hook_plugin() tells of; the library is unloaded when the last of them is gone. Nothing is
// claimed yet. invalid_argument: a relative path, or something untrue in what the plugin says.
// not_found: no such file. unsupported: no library that this machine can load, no plugin, or one
// for another ABI version.
Result<std::vector<Hook>> read_plugin(const std::string& path);

}  // namespace drafthouse
