#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace drafthouse {

// Tensors as they stand in the checkpoint: under Hugging Face's names, sorted.
struct GgufModel {
  std::string path;  // for messages
  const GgufMetadata& metadata;
  const std::vector<TensorInfo>& tensors;
};

bool is_draft_gguf(const GgufMetadata& metadata);

// Architecture "llama" or "qwen3". The rope's divisors are a tensor; they are left empty here.
Result<ModelConfig> model_config_from_gguf(const GgufModel& model);

// Architecture "dflash".
Result<DraftConfig> draft_config_from_gguf(const GgufModel& model);

// What rope_freqs.weight holds, checked.
Result<std::vector<float>> read_rope_divisors(const ByteSource& source, const TensorInfo& tensor,
                                              std::uint32_t head_dim);

}  // namespace drafthouse
