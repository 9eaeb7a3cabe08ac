#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/model_config.h"

namespace drafthouse {

// unsupported when a tensor's name shows that the file is another kind of draft than v1 with the
// target's embedding and head. `where`: the file, for messages.
Status check_draft_tensors(const std::string& where, const std::vector<std::string_view>& tensors);

// What holds for every draft, whatever it was read from.
Status check_draft(const std::string& where, const DraftConfig& config);

}  // namespace drafthouse
