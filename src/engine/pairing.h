#pragma once

#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"

namespace drafthouse {

// Whether a draft fits a target.
struct PairingVerdict {
  Status status;                   // mismatch names the field and both values
  std::vector<std::string> notes;  // differences that do not matter
};

// Compares shapes, tap ids, mask id and block size, and the tokenizers when the draft ships one.
PairingVerdict check_pairing(const ModelConfig& target_config, const DraftConfig& draft_config,
                             const Checkpoint& target, const Checkpoint& draft);

}  // namespace drafthouse
