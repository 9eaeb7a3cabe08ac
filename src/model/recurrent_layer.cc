#include "model/recurrent_layer.h"

namespace drafthouse {
namespace {

std::uint32_t values_of(const RecurrentLayout& layout) {
  return layout.value_heads * layout.value_dim;
}

// File row of each row of q | k | v | z, in files that group them by key head.
RowOrder qkvz_order(const RecurrentLayout& layout) {
  const std::uint32_t group = layout.value_heads / layout.key_heads;
  const std::uint32_t of_values = group * layout.value_dim;
  const std::uint32_t of_head = 2 * layout.key_dim + 2 * of_values;
  RowOrder order;
  const auto part = [&](std::uint32_t begin, std::uint32_t count) {
    for (std::uint32_t head = 0; head < layout.key_heads; ++head) {
      for (std::uint32_t i = 0; i < count; ++i) order.push_back(head * of_head + begin + i);
    }
  };
  part(0, layout.key_dim);
  part(layout.key_dim, layout.key_dim);
  part(2 * layout.key_dim, of_values);
  part(2 * layout.key_dim + of_values, of_values);
  return order;
}

// The same of beta | alpha.
RowOrder ba_order(const RecurrentLayout& layout) {
  const std::uint32_t group = layout.value_heads / layout.key_heads;
  RowOrder order;
  for (const std::uint32_t begin : {0u, group}) {
    for (std::uint32_t head = 0; head < layout.value_heads; ++head) {
      order.push_back(head / group * 2 * group + begin + head % group);
    }
  }
  return order;
}

void mix_delta_rule(Device& device, const StepTable& step, Scratch& scratch,
                    const RecurrentWeights& weights, const RecurrentLayout& layout,
                    std::uint32_t hidden, bool compute_fp32) {
  const std::uint32_t values = values_of(layout);
  const std::uint32_t width = projected_width(layout);
  float* qkv = scratch.qkv.as<float>();
  float* z = qkv + layout.channels;
  float* b = z + values;
  float* a = b + layout.value_heads;
  float* convolved = scratch.convolved.as<float>();
  float* out = scratch.attended.as<float>();
  LinearSegment in[4];
  std::size_t segments = 0;
  const auto add = [&](const PackedMatrix& matrix, std::uint32_t column) {
    if (matrix.outputs != 0) in[segments++] = {matrix, column};
  };
  add(weights.in, 0);
  add(weights.in_z, layout.channels);
  add(weights.in_b, layout.channels + values);
  add(weights.in_a, layout.channels + values + layout.value_heads);
  device.linear(std::span(in).first(segments), compute_fp32, scratch.normed.as<float>(), hidden,
                step.rows, qkv, width, false);
  device.convolution(step, {.layout = layout,
                            .weights = weights.convolution.data(),
                            .silu = true,
                            .x = qkv,
                            .x_stride = width,
                            .out = convolved,
                            .out_stride = layout.channels});
  device.delta_rule(step, {.layout = layout,
                           .qkv = convolved,
                           .qkv_stride = layout.channels,
                           .a = a,
                           .b = b,
                           .gate_stride = width,
                           .a_log = weights.a_log,
                           .dt_bias = weights.dt_bias,
                           .out = out,
                           .out_stride = values});
  device.gated_rms_norm(out, z, width, step.rows, layout.value_heads, layout.value_dim,
                        weights.out_norm, out);
}

void mix_convolution(Device& device, const StepTable& step, Scratch& scratch,
                     const RecurrentWeights& weights, const RecurrentLayout& layout,
                     std::uint32_t hidden, bool compute_fp32) {
  const std::uint32_t width = projected_width(layout);
  float* b = scratch.qkv.as<float>();
  float* c = b + layout.channels;
  float* x = c + layout.channels;
  float* convolved = scratch.convolved.as<float>();
  const LinearSegment in[] = {{weights.in, 0}};
  device.linear(in, compute_fp32, scratch.normed.as<float>(), hidden, step.rows, b, width, false);
  device.multiply(b, width, x, width, step.rows, layout.channels, x, width);
  device.convolution(step, {.layout = layout,
                            .weights = weights.convolution.data(),
                            .silu = false,
                            .x = x,
                            .x_stride = width,
                            .out = convolved,
                            .out_stride = layout.channels});
  device.multiply(c, width, convolved, layout.channels, step.rows, layout.channels,
                  scratch.attended.as<float>(), layout.channels);
}

}  // namespace

std::uint32_t projected_width(const RecurrentLayout& layout) {
  if (layout.value_heads == 0) return 3 * layout.channels;
  return layout.channels + values_of(layout) + 2 * layout.value_heads;
}

std::uint32_t inner_width(const RecurrentLayout& layout) {
  return layout.value_heads == 0 ? layout.channels : values_of(layout);
}

void declare_convolution(WeightLoader& loader, const std::string& name,
                         const RecurrentLayout& layout, RecurrentWeights& weights) {
  for (std::uint32_t tap = 0; tap < layout.kernel; ++tap) {
    loader.vector_part(
        &weights.convolution[tap], name, layout.channels,
        {.shape = {layout.channels, 1, layout.kernel}, .first = tap, .step = layout.kernel});
  }
}

void declare_delta_rule(WeightLoader& loader, const std::string& prefix,
                        const RecurrentLayout& layout, std::uint32_t hidden, float eps, bool fused,
                        RecurrentWeights& weights) {
  const std::string own = prefix + "linear_attn.";
  const std::uint32_t values = values_of(layout);
  const std::uint32_t heads = layout.value_heads;
  if (fused) {
    loader.matrix(&weights.in, own + "in_proj_qkvz.weight", layout.channels + values, hidden,
                  qkvz_order(layout));
    loader.matrix(&weights.in_b, own + "in_proj_ba.weight", 2 * heads, hidden, ba_order(layout));
  } else {
    loader.matrix(&weights.in, own + "in_proj_qkv.weight", layout.channels, hidden);
    loader.matrix(&weights.in_z, own + "in_proj_z.weight", values, hidden);
    loader.matrix(&weights.in_b, own + "in_proj_b.weight", heads, hidden);
    loader.matrix(&weights.in_a, own + "in_proj_a.weight", heads, hidden);
  }
  declare_convolution(loader, own + "conv1d.weight", layout, weights);
  loader.vector(&weights.a_log, own + "A_log", heads);
  loader.vector(&weights.dt_bias, own + "dt_bias", heads);
  weights.out_norm.eps = eps;
  loader.vector(&weights.out_norm.gain, own + "norm.weight", layout.value_dim);
  loader.matrix(&weights.out, own + "out_proj.weight", hidden, values);
}

void run_recurrent(Device& device, const StepTable& step, Scratch& scratch, NormWeights norm,
                   const RecurrentWeights& weights, const RecurrentLayout& layout,
                   std::uint32_t hidden, bool compute_fp32) {
  float* stream = scratch.hidden.as<float>();
  device.rms_norm(stream, hidden, step.rows, hidden, norm, scratch.normed.as<float>(), hidden);
  if (layout.value_heads != 0) {
    mix_delta_rule(device, step, scratch, weights, layout, hidden, compute_fp32);
  } else {
    mix_convolution(device, step, scratch, weights, layout, hidden, compute_fp32);
  }
  const LinearSegment out[] = {{weights.out, 0}};
  const std::uint32_t inner = inner_width(layout);
  device.linear(out, compute_fp32, scratch.attended.as<float>(), inner, step.rows, stream, hidden,
                true);
}

}  // namespace drafthouse
