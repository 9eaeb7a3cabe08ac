#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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

  // Null when there is none.
  const TensorInfo* find(std::string_view name) const;
};

bool is_draft_gguf(const GgufMetadata& metadata);

// Architectures: gguf_families.cc. The rope's divisors are a tensor; they are left empty here.
Result<ModelConfig> model_config_from_gguf(const GgufModel& model);

// Architecture "dflash".
Result<DraftConfig> draft_config_from_gguf(const GgufModel& model);

// What rope_freqs.weight holds, checked; infinity for pairs that do not turn.
Result<std::vector<float>> read_rope_divisors(const ByteSource& source, const TensorInfo& tensor,
                                              std::uint32_t head_dim);

}  // namespace drafthouse
