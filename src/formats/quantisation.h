#pragma once

#include <string>
#include <vector>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"
#include "formats/json_document.h"

namespace drafthouse {

// Weights that a Hugging Face folder keeps in several tensors each. config.json says how:
//
//   MLX       "quantization" (and the same again as "quantization_config"): bits, group_size, mode
//             "affine" or "mxfp4", and entries per module that replace them, or are false.
//             X.weight (U32), X.scales, and for affine X.biases
//   fp8       "quantization_config": quant_method "fp8", fmt "e4m3", weight_block_size.
//             X.weight (F8_E4M3), X.weight_scale_inv
//   mxfp4     "quantization_config": quant_method "mxfp4" (gpt-oss). X_blocks (U8), X_scales (U8)

// unsupported, naming the method or field, for what is not read here; ok also without any.
Status check_quantisation(const JsonDocument& config);

// Makes one tensor X.weight (mxfp4: X_blocks) of each such group, of shape […, outputs, inputs] and
// kind affine, mxfp4_rows or f8_blocks. corrupt, naming file and tensor, when dtypes or shapes
// contradict each other or the configuration. Does nothing where check_quantisation() refuses.
Status join_quantised(const JsonDocument& config, const std::string& config_path,
                      const std::vector<std::string>& files, std::vector<TensorInfo>& tensors);

}  // namespace drafthouse
