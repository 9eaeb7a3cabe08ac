#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/model_config.h"

namespace drafthouse {

// Gemma 4: each of the last `shared` layers attends to the keys and values of the last layer of its
// kind before them. The first layer that finds none is returned. `shared` is below layers.size().
inline std::optional<std::uint32_t> share_last_layers(std::vector<LayerConfig>& layers,
                                                      std::uint32_t shared) {
  const auto count = static_cast<std::uint32_t>(layers.size());
  for (std::uint32_t i = count - shared; i < count; ++i) {
    for (std::uint32_t source = 0; source < count - shared; ++source) {
      if (layers[source].kind == layers[i].kind) layers[i].kv_source = source;
    }
    if (!layers[i].kv_source) return i;
  }
  return std::nullopt;
}

}  // namespace drafthouse
