#pragma once

#include <vector>

#include "formats/checkpoint.h"

namespace drafthouse {

// Gives tensors that files keep in other shapes, with the same bytes, the shape that Hugging Face
// gives them: weights of convolutions are [channels, 1, taps] (GGUF: [channels, taps]; MLX:
// [channels, taps, 1]), the gate of a shared expert is [1, inputs] (GGUF: [inputs]).
//
// True when a convolution of a delta rule stood as MLX has it: such files have their zero-centred
// norms' 1 added already.
bool unify_shapes(std::vector<TensorInfo>& tensors);

}  // namespace drafthouse
