#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/model_config.h"
#include "model/decoder_layer.h"
#include "model/layer_plan.h"
#include "model/weight_loader.h"

namespace drafthouse {

// What a target family adds to its configuration: the tensors of its layers. A family is one file with
// one such function; what a layer computes follows from its plan and from the weights that it has.
struct Family {
  std::string_view name;  // ModelConfig::family
  // Declares the tensors of one layer, under their Hugging Face names with `prefix` before them.
  void (*declare_layer)(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                        const LayerPlan& plan, DecoderLayer& layer);
};

void declare_llama_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer);
void declare_qwen3_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer);

// Null when no such family is built.
const Family* find_family(std::string_view name);
// "llama, qwen3, …", for messages.
std::string known_families();

}  // namespace drafthouse
