#pragma once

#include <array>
#include <string_view>

#include "formats/config_fields.h"
#include "formats/gguf_config.h"
#include "formats/model_config.h"

namespace drafthouse {

// What a target architecture of GGUF adds to the fields that all share.
struct GgufFamily {
  std::string_view architecture;  // general.architecture
  std::string_view family;        // ModelConfig::family
  // Its own fields, read after the shared ones; null: there are none.
  void (*read)(ConfigFields& fields, const GgufModel& model, ModelConfig& config) = nullptr;
  // Of those that other architectures are refused for.
  std::array<std::string_view, 3> own_keys = {};
  // Counts of heads and sizes of MLPs may be lists, one entry for each layer.
  bool by_layer = false;
  bool partial_rope = false;  // rope.dimension_count may be less than a head
  bool needs_mlp = true;      // feed_forward_length is required
  bool own(std::string_view key) const;
};

// Null when the architecture is not known.
const GgufFamily* find_gguf_family(std::string_view architecture);
// "llama, qwen2, …", for messages.
std::string known_gguf_architectures();

}  // namespace drafthouse
