// The tensors of experts, in the layouts in which checkpoints have them.

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "model/family.h"

namespace drafthouse {
namespace {

// One tensor for each matrix of each expert: `prefix`E.gate_proj.weight.
void declare_one_by_one(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                        DecoderLayer& layer) {
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    ExpertWeights& expert = layer.experts[e];
    const std::string name = fmt::format("{}{}.", prefix, e);
    const std::uint32_t width = shape.expert_intermediate;
    loader.matrix(&expert.gate, name + "gate_proj.weight", width, shape.hidden);
    loader.matrix(&expert.up, name + "up_proj.weight", width, shape.hidden);
    loader.matrix(&expert.down, name + "down_proj.weight", shape.hidden, width);
  }
}

// One tensor for each kind of matrix, [experts, outputs, inputs]: `prefix`gate_proj.weight.
void declare_stacked(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                     DecoderLayer& layer) {
  const auto part = [&](PackedMatrix& out, const char* name, std::uint32_t expert,
                        std::uint32_t outputs, std::uint32_t inputs) {
    loader.matrix_part(
        &out, prefix + name, outputs, inputs,
        {.shape = {shape.experts, outputs, inputs}, .first = std::uint64_t{expert} * outputs});
  };
  const std::uint32_t width = shape.expert_intermediate;
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    part(layer.experts[e].gate, "gate_proj.weight", e, width, shape.hidden);
    part(layer.experts[e].up, "up_proj.weight", e, width, shape.hidden);
    part(layer.experts[e].down, "down_proj.weight", e, shape.hidden, width);
  }
  if (!loader.has(prefix + "gate_proj.bias")) return;
  const auto bias = [&](const float** out, const char* name, std::uint32_t expert,
                        std::uint32_t outputs) {
    loader.vector_part(
        out, prefix + name, outputs,
        {.shape = {shape.experts, outputs}, .first = std::uint64_t{expert} * outputs});
  };
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    bias(&layer.experts[e].gate_bias, "gate_proj.bias", e, width);
    bias(&layer.experts[e].up_bias, "up_proj.bias", e, width);
    bias(&layer.experts[e].down_bias, "down_proj.bias", e, shape.hidden);
  }
}

// Gate and up in one tensor, [experts, 2 · intermediate, hidden], gate first. `suffix`: of the
// names.
void declare_fused(WeightLoader& loader, const std::string& prefix, const std::string& suffix,
                   const LayerShape& shape, DecoderLayer& layer) {
  const std::uint32_t width = shape.expert_intermediate;
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    ExpertWeights& expert = layer.experts[e];
    const auto half = [&](PackedMatrix& out, std::uint64_t first) {
      loader.matrix_part(&out, prefix + "gate_up_proj" + suffix, width, shape.hidden,
                         {.shape = {shape.experts, std::uint64_t{2} * width, shape.hidden},
                          .first = std::uint64_t{e} * 2 * width + first});
    };
    half(expert.gate, 0);
    half(expert.up, width);
    loader.matrix_part(
        &expert.down, prefix + "down_proj" + suffix, shape.hidden, width,
        {.shape = {shape.experts, shape.hidden, width}, .first = std::uint64_t{e} * shape.hidden});
  }
}

}  // namespace

void declare_experts(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                     DecoderLayer& layer) {
  layer.experts.resize(shape.experts);
  for (const char* suffix : {"", ".weight"}) {
    if (loader.has(prefix + "gate_up_proj" + suffix)) {
      return declare_fused(loader, prefix, suffix, shape, layer);
    }
  }
  if (loader.has(prefix + "0.gate_proj.weight")) {
    return declare_one_by_one(loader, prefix, shape, layer);
  }
  declare_stacked(loader, prefix, shape, layer);
}

// gpt-oss: rows of gate and up in turns; [experts, inputs, outputs], or [experts, outputs, inputs]
// in MXFP4 blocks.
void declare_interleaved_experts(WeightLoader& loader, const std::string& prefix,
                                 const LayerShape& shape, DecoderLayer& layer) {
  const std::uint32_t width = shape.expert_intermediate;
  const std::uint64_t both = std::uint64_t{2} * width;
  layer.experts.resize(shape.experts);
  const bool blocks = loader.has(prefix + "gate_up_proj_blocks");
  const std::string suffix = blocks ? "_blocks" : "";
  // `rows`: of the tensor, for each expert.
  const auto part = [&](PackedMatrix& out, const char* name, std::uint32_t outputs,
                        std::uint32_t inputs, std::uint64_t rows, TensorPart at) {
    at.transposed = !blocks;
    at.shape = blocks ? std::vector<std::uint64_t>{shape.experts, rows, inputs}
                      : std::vector<std::uint64_t>{shape.experts, inputs, rows};
    loader.matrix_part(&out, prefix + name + suffix, outputs, inputs, std::move(at));
  };
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    ExpertWeights& expert = layer.experts[e];
    const auto half = [&](PackedMatrix& out, const float** bias, std::uint32_t first) {
      part(out, "gate_up_proj", width, shape.hidden, both,
           {.shape = {}, .first = e * both + first, .step = 2});
      loader.vector_part(bias, prefix + "gate_up_proj_bias", width,
                         {.shape = {shape.experts, both}, .first = e * both + first, .step = 2});
    };
    half(expert.gate, &expert.gate_bias, 0);
    half(expert.up, &expert.up_bias, 1);
    part(expert.down, "down_proj", shape.hidden, width, shape.hidden,
         {.shape = {}, .first = std::uint64_t{e} * shape.hidden});
    loader.vector_part(
        &expert.down_bias, prefix + "down_proj_bias", shape.hidden,
        {.shape = {shape.experts, shape.hidden}, .first = std::uint64_t{e} * shape.hidden});
  }
}

}  // namespace drafthouse
