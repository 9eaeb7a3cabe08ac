#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "cache/sequence_cache.h"

namespace drafthouse {

class Sampler;

// One growing list of ids with its state. Between turns:
//
//   ids                 0 … n−1; the last is the anchor
//   target              positions 0 … n−2
//   draft               context rows of positions 0 … draft.length()−1
//   waiting taps        raw, of positions draft.length() … n−2
//
// Confined to the engine thread.
struct Sequence {
  std::vector<std::uint32_t> ids;
  SequenceCache target;
  // Absent when the sequence never drafts: then nothing is tapped.
  std::optional<SequenceCache> draft;
  Buffer taps;  // [waiting_max][tap_width] floats
  std::uint32_t taps_waiting = 0;
  // Chooses its ids; null: always the most likely one. Belongs to whoever started the sequence.
  Sampler* sampler = nullptr;

  bool drafts() const { return draft.has_value(); }
};

}  // namespace drafthouse
