#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/model_config.h"

namespace drafthouse {

// What the names of a draft's tensors say that it is. Each is the name of one such tensor; empty:
// there is none.
struct DraftTensors {
  std::string_view convolution;
  std::string_view selector;
  std::string_view head;
  std::string_view embedding;
  std::string_view id_map;  // d2t
};

// unsupported when a tensor's name shows another kind of draft than those of DraftConfig. `where`:
// the file, for messages.
Result<DraftTensors> read_draft_tensors(const std::string& where,
                                        const std::vector<std::string_view>& tensors);

// Fills own_head and own_embedding. mismatch when the tensors are those of another kind of draft
// than the configuration describes: class names are often wrong, tensors are not. `said`: how the
// configuration says which kind it is.
Status settle_draft_kind(const std::string& where, const DraftTensors& tensors,
                         std::string_view said, DraftConfig& config);

// What holds for every draft, whatever it was read from.
Status check_draft(const std::string& where, const DraftConfig& config);

}  // namespace drafthouse
