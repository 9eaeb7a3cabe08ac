#include "formats/tensor_layouts.h"

#include <string_view>

namespace drafthouse {

bool unify_shapes(std::vector<TensorInfo>& tensors) {
  bool mlx = false;
  for (TensorInfo& tensor : tensors) {
    const std::string_view name = tensor.name;
    std::vector<std::uint64_t>& shape = tensor.shape;
    const bool delta = name.ends_with(".linear_attn.conv1d.weight");
    if (delta || name.ends_with(".conv.conv.weight")) {
      if (shape.size() == 2) shape.insert(shape.begin() + 1, 1);
      if (shape.size() == 3 && shape[1] != 1 && shape[2] == 1) {
        shape = {shape[0], 1, shape[1]};
        mlx = mlx || delta;
      }
    } else if (shape.size() == 1 && name.ends_with(".mlp.shared_expert_gate.weight")) {
      shape.insert(shape.begin(), 1);
    }
  }
  return mlx;
}

}  // namespace drafthouse
