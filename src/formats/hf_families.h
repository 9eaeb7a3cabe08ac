#pragma once

#include <string>
#include <string_view>

#include "formats/config_fields.h"
#include "formats/model_config.h"

namespace drafthouse {

// How config.json describes one family of targets, beyond the fields that all families share.
struct HfFamily {
  std::string_view model_type;  // of the text model
  std::string_view family;      // ModelConfig::family
  bool sliding_layers = false;  // layer_types may name them
  std::string_view recurrent =
      {};                     // what layer_types calls recurrent layers; empty: there are none
  bool silu = true;           // hidden_act is to be "silu"; else read() looks at the activation
  bool partial_rope = false;  // partial_rotary_factor says how much of a head is rotated
  bool needs_mlp = true;      // intermediate_size is required; else read() sets it
  bool one_rope = true;       // rope_parameters hold for all layers; else read() reads them
  // Reads the family's own fields; `config` holds the shared ones. Null: there are none.
  void (*read)(ConfigFields& fields, const std::string& file, ModelConfig& config) = nullptr;
};

// Null when no such family is built.
const HfFamily* find_hf_family(std::string_view model_type);
// "llama, qwen2, …", for messages.
std::string known_model_types();

}  // namespace drafthouse
