#include "model/recurrent_layer.h"

#include <cmath>
#include <utility>

#include "tensor/half.h"

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

// File unit of each value head's units, `per_head` of them, in files whose value heads are tiled.
RowOrder tiled_order(const RecurrentLayout& layout, std::uint32_t per_head,
                     std::uint32_t first = 0) {
  const std::uint32_t group = layout.value_heads / layout.key_heads;
  RowOrder order(first + std::size_t{layout.value_heads} * per_head);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    if (i < first) {
      order[i] = i;
      continue;
    }
    const std::uint32_t head = (i - first) / per_head;
    const std::uint32_t file_head = head % group * layout.key_heads + head / group;
    order[i] = first + file_head * per_head + (i - first) % per_head;
  }
  return order;
}

// A_log of −e^A_log. What was a bf16 number becomes that number again; e^ of another is off by what
// its rounding to fp32 costs.
float log_of_rate(float rate) {
  const double exact = std::log(-static_cast<double>(rate));
  const float short_one = bf16_to_float(float_to_bf16(static_cast<float>(exact)));
  const double again = -std::exp(static_cast<double>(short_one));
  const bool same = std::fabs(again - rate) <= std::fabs(static_cast<double>(rate)) * 0x1p-23;
  return same ? short_one : static_cast<float>(exact);
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
                         const RecurrentLayout& layout, RecurrentWeights& weights,
                         const RowOrder& order) {
  for (std::uint32_t tap = 0; tap < layout.kernel; ++tap) {
    loader.vector_part(
        &weights.convolution[tap], name, layout.channels,
        {.shape = {layout.channels, 1, layout.kernel}, .first = tap, .step = layout.kernel},
        {.order = order});
  }
}

void declare_delta_rule(WeightLoader& loader, const std::string& prefix,
                        const RecurrentLayout& layout, std::uint32_t hidden, float eps,
                        DeltaTensors tensors, RecurrentWeights& weights) {
  const std::string own = prefix + "linear_attn.";
  const std::uint32_t values = values_of(layout);
  const std::uint32_t heads = layout.value_heads;
  const bool tiled = tensors.tiled_heads && heads != layout.key_heads;
  const std::uint32_t before_values = layout.channels - values;
  const auto order = [&](std::uint32_t per_head, std::uint32_t first) {
    return tiled ? tiled_order(layout, per_head, first) : RowOrder{};
  };
  if (tensors.fused && !loader.has(own + "in_proj_qkv.weight")) {
    loader.matrix(&weights.in, own + "in_proj_qkvz.weight", layout.channels + values, hidden,
                  qkvz_order(layout));
  } else {
    loader.matrix(&weights.in, own + "in_proj_qkv.weight", layout.channels, hidden,
                  order(layout.value_dim, before_values));
    loader.matrix(&weights.in_z, own + "in_proj_z.weight", values, hidden,
                  order(layout.value_dim, 0));
  }
  if (tensors.fused && !loader.has(own + "in_proj_b.weight")) {
    loader.matrix(&weights.in_b, own + "in_proj_ba.weight", 2 * heads, hidden, ba_order(layout));
  } else {
    loader.matrix(&weights.in_b, own + "in_proj_b.weight", heads, hidden, order(1, 0));
    loader.matrix(&weights.in_a, own + "in_proj_a.weight", heads, hidden, order(1, 0));
  }
  declare_convolution(loader, own + "conv1d.weight", layout, weights,
                      order(layout.value_dim, before_values));
  const bool rates = loader.has(own + "rate");
  loader.vector_part(&weights.a_log, own + (rates ? "rate" : "A_log"), heads, {.shape = {heads}},
                     {.map = rates ? log_of_rate : nullptr, .order = order(1, 0)});
  loader.vector_part(&weights.dt_bias, own + "dt_bias", heads, {.shape = {heads}},
                     {.order = order(1, 0)});
  weights.out_norm.eps = eps;
  loader.vector(&weights.out_norm.gain, own + "norm.weight", layout.value_dim);
  InputOrder columns;
  if (tiled) columns = {.unit = layout.value_dim, .units = tiled_order(layout, 1)};
  loader.matrix(&weights.out, own + "out_proj.weight", hidden, values, {}, std::move(columns));
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
