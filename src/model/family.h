#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/model_config.h"
#include "model/decoder_layer.h"
#include "model/layer_plan.h"
#include "model/weight_loader.h"

namespace drafthouse {

// What a target family adds to its configuration: the tensors of its layers. A family is one file
// with one such function; what a layer computes follows from its plan and from the weights that it
// has.
struct Family {
  std::string_view name;  // ModelConfig::family
  // Declares the tensors of one layer, under their Hugging Face names with `prefix` before them.
  void (*declare_layer)(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                        const LayerPlan& plan, DecoderLayer& layer);
  const char* final_norm = "model.norm.weight";
};

void declare_llama_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer);
void declare_qwen2_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer);
void declare_gemma4_layer(WeightLoader& loader, const std::string& prefix,
                          const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer);
void declare_gpt_oss_layer(WeightLoader& loader, const std::string& prefix,
                           const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer);
void declare_qwen3_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                         const LayerPlan& plan, DecoderLayer& layer);

// Qwen3-Next, and Qwen3.5 and later, which split its fused projections.
void declare_qwen3_next_layer(WeightLoader& loader, const std::string& prefix,
                              const ModelConfig& config, const LayerPlan& plan,
                              DecoderLayer& layer);
void declare_qwen3_5_layer(WeightLoader& loader, const std::string& prefix,
                           const ModelConfig& config, const LayerPlan& plan, DecoderLayer& layer);
void declare_lfm2_layer(WeightLoader& loader, const std::string& prefix, const ModelConfig& config,
                        const LayerPlan& plan, DecoderLayer& layer);

// The experts of a layer, in whichever layout the source has them: gate and up in one tensor, one
// tensor for each expert, or one for each kind of matrix. `prefix` ends in "experts.".
void declare_experts(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                     DecoderLayer& layer);
// The same for gpt-oss, whose gate and up take turns, with biases.
void declare_interleaved_experts(WeightLoader& loader, const std::string& prefix,
                                 const LayerShape& shape, DecoderLayer& layer);

// Null when no such family is built.
const Family* find_family(std::string_view name);
// "llama, qwen3, …", for messages.
std::string known_families();

}  // namespace drafthouse
