#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace drafthouse {

// The dtype of a ggml tensor type; nothing when it is not read here.
std::optional<Dtype> dtype_of_ggml(std::uint32_t type);

// ggml's name of a type ("Q4_K"), or its number when it is not known.
std::string name_of_ggml(std::uint32_t type);

}  // namespace drafthouse
