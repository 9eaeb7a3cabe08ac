// What a layer does after its attention. The parts that a layer lacks are left out, so every family
// walks through the same functions.

#include "model/decoder_layer.h"

namespace drafthouse {
namespace {

// One layer's pass: what every part needs.
struct Part {
  Device& device;
  const StepTable& step;
  Scratch& scratch;
  const DecoderLayer& layer;
  const LayerShape& shape;
  bool fp32;

  float* stream() const { return scratch.hidden.as<float>(); }
  void norm(const float* in, NormWeights norm, float* out) const {
    device.rms_norm(in, shape.hidden, step.rows, shape.hidden, norm, out, shape.hidden);
  }
  void linear(const PackedMatrix& matrix, const float* x, float* out, bool accumulate) const {
    const LinearSegment segment[] = {{matrix, 0}};
    device.linear(segment, fp32, x, matrix.inputs, step.rows, out, matrix.outputs, accumulate);
  }
  void add(const float* in, float* out) const {
    device.add(in, shape.hidden, step.rows, shape.hidden, out, shape.hidden);
  }
};

// out (+)= down · (act(gate · x) · (up · x)), x = scratch.normed.
void run_dense(const Part& part, float* out, bool accumulate) {
  const LayerShape& shape = part.shape;
  const std::size_t stride = std::size_t{2} * shape.intermediate;
  float* gate_up = part.scratch.gate_up.as<float>();
  float* gated = part.scratch.gated.as<float>();
  const LinearSegment in[] = {{part.layer.gate, 0}, {part.layer.up, shape.intermediate}};
  part.device.linear(in, part.fp32, part.scratch.normed.as<float>(), shape.hidden, part.step.rows,
                     gate_up, stride, false);
  part.device.gate_mul({.gating = shape.gating,
                        .rows = part.step.rows,
                        .width = shape.intermediate,
                        .gate = gate_up,
                        .gate_stride = stride,
                        .up = gate_up + shape.intermediate,
                        .up_stride = stride,
                        .out = gated});
  if (part.layer.dense_gate.outputs != 0) {
    // Where the gates went is read no more.
    part.linear(part.layer.dense_gate, part.scratch.normed.as<float>(), gate_up, false);
    part.device.sigmoid_scale(gate_up, part.step.rows, shape.intermediate, gated);
  }
  part.linear(part.layer.down, gated, out, accumulate);
}

// scratch.normed is norm(stream; mlp_norm) at the beginning, and worthless at the end.
void run_experts(const Part& part, float* out, bool accumulate) {
  const LayerShape& shape = part.shape;
  const DecoderLayer& layer = part.layer;
  Scratch& scratch = part.scratch;
  float* normed = scratch.normed.as<float>();
  float* logits = scratch.router.as<float>();
  auto* ids = scratch.expert_ids.as<std::uint32_t>();
  auto* weights = scratch.expert_weights.as<float>();
  if (layer.router_norm.gain != nullptr) part.norm(part.stream(), layer.router_norm, normed);
  part.linear(layer.router, normed, logits, false);
  if (layer.router_bias != nullptr) {
    part.device.add(layer.router_bias, 0, part.step.rows, shape.experts, logits, shape.experts);
  }
  part.device.route({.rows = part.step.rows,
                     .experts = shape.experts,
                     .chosen = shape.experts_per_row,
                     .normalise = shape.normalise_experts,
                     .logits = logits,
                     .expert_scale = layer.expert_scale,
                     .ids = ids,
                     .weights = weights});
  if (layer.expert_norm.gain != nullptr) part.norm(part.stream(), layer.expert_norm, normed);
  part.device.experts({.experts = layer.experts,
                       .gating = shape.gating,
                       .fp32 = part.fp32,
                       .rows = part.step.rows,
                       .chosen = shape.experts_per_row,
                       .hidden = shape.hidden,
                       .intermediate = shape.expert_intermediate,
                       .ids = ids,
                       .weights = weights,
                       .x = normed,
                       .slots = scratch.expert_slots.as<float>(),
                       .gate_up = scratch.expert_gate_up.as<float>(),
                       .gated = scratch.expert_gated.as<float>(),
                       .out = out,
                       .accumulate = accumulate});
}

void run_layer_input(const Part& part) {
  const LayerShape& shape = part.shape;
  float* gate = part.scratch.gate_up.as<float>();
  float* gated = part.scratch.gated.as<float>();
  float* branch = part.scratch.branch.as<float>();
  part.linear(part.layer.input_gate, part.stream(), gate, false);
  part.device.gate_mul({.gating = shape.gating,
                        .rows = part.step.rows,
                        .width = shape.layer_input,
                        .gate = gate,
                        .gate_stride = shape.layer_input,
                        .up = part.scratch.layer_inputs.as<float>() + shape.layer_input_at,
                        .up_stride = shape.layer_inputs,
                        .out = gated});
  part.linear(part.layer.input_projection, gated, branch, false);
  part.norm(branch, part.layer.input_norm, branch);
  part.add(branch, part.stream());
}

}  // namespace

void run_feed_forward(Device& device, const StepTable& step, Scratch& scratch,
                      const DecoderLayer& layer, const LayerShape& shape, bool compute_fp32) {
  const Part part{device, step, scratch, layer, shape, compute_fp32};
  float* stream = part.stream();
  const bool normed_out = layer.mlp_out_norm.gain != nullptr;
  const bool branches = normed_out || layer.mlp_conv;
  float* joined = branches ? scratch.branch.as<float>() : stream;
  const bool dense = shape.intermediate != 0;
  part.norm(stream, layer.mlp_norm, scratch.normed.as<float>());
  if (layer.mlp_conv) layer.mlp_conv.begin(device, step, scratch, compute_fp32);
  if (dense) {
    run_dense(part, joined, !branches);
    if (layer.dense_out_norm.gain != nullptr) part.norm(joined, layer.dense_out_norm, joined);
  }
  if (!layer.experts.empty()) {
    if (layer.expert_out_norm.gain != nullptr) {
      float* sum = scratch.expert_branch.as<float>();
      run_experts(part, sum, false);
      part.norm(sum, layer.expert_out_norm, sum);
      part.add(sum, joined);
    } else {
      run_experts(part, joined, dense || !branches);
    }
  }
  if (branches) {
    if (layer.mlp_conv) layer.mlp_conv.end(device, step, scratch, joined);
    if (normed_out) part.norm(joined, layer.mlp_out_norm, joined);
    part.add(joined, stream);
  }
  if (shape.layer_input != 0) run_layer_input(part);
  if (layer.output_scale != nullptr) {
    device.scale(stream, std::size_t{step.rows} * shape.hidden, *layer.output_scale);
  }
}

}  // namespace drafthouse
