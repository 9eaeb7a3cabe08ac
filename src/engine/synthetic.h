#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/engine.h"
#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "tensor/row_format.h"

namespace drafthouse {

// Pairs with random weights: a model's sizes without its files, for benches and tests.

// "qwen3-0.6b", … in the order in which help lists them.
std::vector<std::string_view> published_shapes();
// not_found, with the known names, for any other name.
Result<ModelConfig> published_shape(std::string_view name);

// A draft of the target's own layer shape: at most 5 layers and 5 taps, a block of 16.
DraftConfig draft_for(const ModelConfig& target);

struct SyntheticPair {
  std::string name;  // what EngineInfo calls it
  ModelConfig target;
  RowFormat format = Dtype::q8_0;              // of every matrix
  std::optional<RowFormat> draft_format = {};  // absent: the same
  bool with_draft = true;
  // Packed weights above this are refused with no_memory; 0: no limit.
  std::uint64_t memory_limit = 0;
};

// Packed bytes of the target's and the draft's weights; 0 for a shape that make_synthetic_engine()
// refuses.
std::uint64_t packed_bytes(const SyntheticPair& pair);

// Of `options`, the fields that name files are ignored. The weights depend only on names and
// shapes.
Result<std::unique_ptr<Engine>> make_synthetic_engine(const SyntheticPair& pair,
                                                      const EngineOptions& options);

}  // namespace drafthouse
