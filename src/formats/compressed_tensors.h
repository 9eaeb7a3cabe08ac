#pragma once

#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"
#include "formats/json_document.h"

namespace drafthouse {

// Whole numbers packed into 32-bit words by the compressed-tensors library ("pack-quantized"): for
// each module X.weight_packed [outputs, words] with value j of a row at bits [j·bits, (j +
// 1)·bits), X.weight_scale [outputs, groups], X.weight_zero_point [words of outputs, groups] unless
// symmetric, X.weight_shape. A stored number u means (u − z) · scale, z = 2^(bits − 1) where there
// is no zero point. That is an affine row whose minima are −z · scale: computed in the scale's own
// kind where they are exact there (symmetric), in fp32 otherwise.

// What `said` (quantization_config) asks for that is not built, by its field.
Status check_compressed(const JsonView& said);

// Makes an affine tensor X.weight of each module's tensors. Requires check_compressed(). corrupt:
// tensors that the configuration does not explain; unsupported: numbers that no packed kind holds.
Status join_compressed(const JsonView& said, const std::vector<std::string>& files,
                       std::vector<TensorInfo>& tensors);

}  // namespace drafthouse
