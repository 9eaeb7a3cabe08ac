#pragma once

#include <optional>
#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"

namespace drafthouse {

// Whether a draft fits a target.
struct PairingVerdict {
  Status status;                      // mismatch names the field and both values
  std::optional<DraftConfig> config;  // of the draft, where it can be read
  std::vector<std::string> notes;     // differences that do not matter
};

// Everything that a load of the two finds out before it reads weights: configurations, shapes, tap
// ids, mask id and block size, every tensor of the draft, its map of ids, and the tokenizers when
// the draft ships one. Reads headers, and the tensors of the map.
PairingVerdict check_pairing(const Checkpoint& target, const Checkpoint& draft);

// The same of a target alone: its configuration, its family, and every tensor that it needs.
Status check_target(const Checkpoint& target);

}  // namespace drafthouse
