#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"

namespace drafthouse {

// Hugging Face's name of a tensor in a GGUF file of a model that can answer:
// "blk.3.attn_q.weight" is "model.layers.3.self_attn.q_proj.weight". Some architectures
// (general.architecture) name parts in a way of their own. Names without a counterpart
// ("rope_freqs.weight") stay as they are.
std::string target_tensor_name(std::string_view architecture, std::string_view name);

// The same for a file of architecture "dflash", to the names of a DFlash draft
// ("layers.3.self_attn.q_proj.weight", "fc.weight"). Files whose tensors already have these names
// are taken as they are.
std::string draft_tensor_name(std::string_view name);

// Gives every tensor its name of these, and the shape that goes with it (tensor_layouts.h). Blocks
// that a target has behind its last layer, which propose ids, keep the file's names.
void name_tensors(const GgufMetadata& metadata, std::vector<TensorInfo>& tensors);

}  // namespace drafthouse
