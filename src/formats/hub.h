#pragma once

#include <string>
#include <vector>

#include "drafthouse/status.h"

namespace drafthouse {

// What a user's name for a model stands for: the path of a folder or file, resolved. One rule for
// targets and drafts: a path that exists is that path; otherwise "org/name", "name" or
// "org/name@revision" is looked up in the local Hugging Face cache. Never touches the network.
// not_found says where was looked; invalid_argument why the system does not let us look (no
// permission, a loop of links). The only place of this folder that reads the environment:
// HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME.
Result<std::string> resolve_model(const std::string& name);

// Ids ("org/name") of the models in that cache, sorted; files may be missing in each.
std::vector<std::string> cached_models();

}  // namespace drafthouse
