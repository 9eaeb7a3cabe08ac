#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/config_fields.h"
#include "formats/json_document.h"
#include "formats/model_config.h"

namespace drafthouse {

// Where a configuration stands and what else decides it. Paths are for messages.
struct HfConfigFiles {
  std::string config_path;
  JsonDocument config;
  std::string generation_path;
  JsonDocument generation;                // empty when the file is not there
  std::vector<std::uint32_t> text_stops;  // ids that the tokenizer's files name as ends of a text
};

// Whether a config.json describes a draft and not a model that can answer.
bool is_draft_config(const JsonDocument& config);

// A family of hf_families.h. unsupported or invalid_argument; the message names the field.
Result<ModelConfig> model_config_from_hf(const HfConfigFiles& files);

// A z-lab DFlash draft. `tensors`: names in the checkpoint, which tell variants apart that share
// one architecture name.
Result<DraftConfig> draft_config_from_hf(const HfConfigFiles& files,
                                         const std::vector<std::string_view>& tensors);

// rope_parameters, else rope_theta and rope_scaling. `layer_type`: rope_parameters hold one set for
// each type of layer, and this one is read. `head_dim`: partial_rotary_factor may leave a part of
// such a head as it is; 0: it may not.
RopeConfig read_hf_rope(ConfigFields& fields, const std::string& file,
                        const std::string& layer_type = {}, std::uint32_t head_dim = 0);

}  // namespace drafthouse
