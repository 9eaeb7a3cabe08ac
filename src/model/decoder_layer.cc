#include "model/decoder_layer.h"

#include <fmt/format.h>

#include <cmath>

#include "tensor/head_dim.h"

namespace drafthouse {
namespace {

// File row of each row in half-split order, for files that pair (2i, 2i + 1) inside a head.
RowOrder half_split_order(std::uint32_t rows, std::uint32_t head_dim) {
  RowOrder order(rows);
  const std::uint32_t half = head_dim / 2;
  for (std::uint32_t r = 0; r < rows; ++r) {
    const std::uint32_t d = r % head_dim;
    order[r] = r - d + 2 * (d % half) + d / half;
  }
  return order;
}

// File row of each row of queries | gates, in files that have a head's gates behind its queries.
RowOrder queries_first_order(std::uint32_t q_width, std::uint32_t head_dim) {
  RowOrder order(std::size_t{2} * q_width);
  for (std::uint32_t r = 0; r < 2 * q_width; ++r) {
    const std::uint32_t row = r % q_width;
    order[r] = row / head_dim * 2 * head_dim + r / q_width * head_dim + row % head_dim;
  }
  return order;
}

}  // namespace

Status LayerShape::check(const std::string& label) const {
  if (head_dim != 0 && head_dim % kHeadDimStep == 0 && head_dim <= kHeadDimMax) return {};
  return Status(
      Code::unsupported,
      fmt::format("{}: attention heads of {} values are not supported; multiples of {} up "
                  "to {} are",
                  label, head_dim, kHeadDimStep, kHeadDimMax));
}

void DecoderLayer::declare_attention(WeightLoader& loader, const std::string& prefix,
                                     const LayerShape& shape, const AttentionTensors& tensors) {
  const std::string attention = prefix + "self_attn.";
  const auto norm = [&](NormWeights& out, const std::string& name, std::uint32_t width) {
    out.eps = shape.eps;
    loader.vector(&out.gain, name, width, 1.0f, shape.gain_offset);
  };
  const auto order = [&](std::uint32_t rows) {
    return tensors.interleaved_rope_rows ? half_split_order(rows, shape.head_dim) : RowOrder{};
  };
  norm(attention_norm, prefix + "input_layernorm.weight", shape.hidden);
  loader.matrix(&q, attention + "q_proj.weight", shape.q_rows(), shape.hidden,
                shape.attention_gate ? queries_first_order(shape.q_width(), shape.head_dim)
                                     : order(shape.q_width()));
  if (tensors.own_kv) {
    loader.matrix(&k, attention + "k_proj.weight", shape.kv_width(), shape.hidden,
                  order(shape.kv_width()));
  }
  if (tensors.own_kv && !tensors.value_is_key) {
    loader.matrix(&v, attention + "v_proj.weight", shape.kv_width(), shape.hidden);
  }
  loader.matrix(&o, attention + "o_proj.weight", shape.hidden, shape.q_width());
  const auto absent = [&](const char* name) {
    loader.absent(attention + name,
                  "this family does not use it: is model_type in the configuration right?");
  };
  if (tensors.qkv_bias) {
    loader.vector(&q_bias, attention + "q_proj.bias", shape.q_width());
    loader.vector(&k_bias, attention + "k_proj.bias", shape.kv_width());
    loader.vector(&v_bias, attention + "v_proj.bias", shape.kv_width());
  } else {
    absent("q_proj.bias");
  }
  if (tensors.o_bias) {
    loader.vector(&o_bias, attention + "o_proj.bias", shape.hidden);
  } else {
    absent("o_proj.bias");
  }
  if (tensors.qk_norm) {
    norm(q_norm, attention + "q_norm.weight", shape.head_dim);
    if (tensors.own_kv) norm(k_norm, attention + "k_norm.weight", shape.head_dim);
  } else {
    absent("q_norm.weight");
  }
}

void DecoderLayer::declare_mlp(WeightLoader& loader, const std::string& prefix,
                               const LayerShape& shape, const std::string& norm,
                               const std::string& mlp) {
  mlp_norm.eps = shape.eps;
  loader.vector(&mlp_norm.gain, prefix + norm, shape.hidden, 1.0f, shape.gain_offset);
  if (shape.intermediate == 0) return;
  loader.matrix(&gate, prefix + mlp + "gate_proj.weight", shape.intermediate, shape.hidden);
  loader.matrix(&up, prefix + mlp + "up_proj.weight", shape.intermediate, shape.hidden);
  loader.matrix(&down, prefix + mlp + "down_proj.weight", shape.hidden, shape.intermediate);
}

std::size_t DecoderLayer::matrix_bytes(std::size_t experts_read) const {
  std::size_t bytes = 0;
  const auto add = [&](const PackedMatrix& matrix) { bytes += matrix.bytes(); };
  each_matrix(add);
  each_expert_matrix(experts_read, add);
  return bytes;
}

std::uint64_t DecoderLayer::matrix_weights(std::size_t experts_read) const {
  std::uint64_t weights = 0;
  const auto add = [&](const PackedMatrix& matrix) {
    weights += std::uint64_t{matrix.outputs} * matrix.inputs;
  };
  each_matrix(add);
  each_expert_matrix(experts_read, add);
  return weights;
}

void run_attention(Device& device, const StepTable& step, Scratch& scratch,
                   const DecoderLayer& layer, const LayerShape& shape, const LayerAttentionJob& job,
                   bool compute_fp32) {
  float* stream = scratch.hidden.as<float>();
  float* normed = scratch.normed.as<float>();
  float* q = scratch.qkv.as<float>();
  float* k = q + shape.q_rows();
  float* v = k + shape.kv_width();
  float* attended = scratch.attended.as<float>();

  device.rms_norm(stream, shape.hidden, step.rows, shape.hidden, layer.attention_norm, normed,
                  shape.hidden);
  if (layer.attention_conv) layer.attention_conv.begin(device, step, scratch, compute_fp32);
  const LinearSegment in[] = {
      {layer.q, 0}, {layer.k, shape.q_rows()}, {layer.v, shape.q_rows() + shape.kv_width()}};
  const bool value_is_key = layer.v.outputs == 0;
  device.linear(std::span(in).first(!job.own_kv    ? 1
                                    : value_is_key ? 2
                                                   : 3),
                compute_fp32, normed, shape.hidden, step.rows, q, shape.qkv_width(), false);
  if (layer.q_bias != nullptr) {
    device.add(layer.q_bias, 0, step.rows, shape.q_width(), q, shape.qkv_width());
    device.add(layer.k_bias, 0, step.rows, shape.kv_width(), k, shape.qkv_width());
    device.add(layer.v_bias, 0, step.rows, shape.kv_width(), v, shape.qkv_width());
  }
  device.rope_kv(step, RopeKvJob{.kv = job.kv,
                                 .heads = shape.heads,
                                 .rotary = &step.rotary[job.rotary],
                                 .q_norm = layer.q_norm,
                                 .k_norm = layer.k_norm,
                                 .v_norm = layer.v_norm,
                                 .value_is_key = value_is_key,
                                 .q = q,
                                 .k = job.own_kv ? k : nullptr,
                                 .v = v,
                                 .stride = shape.qkv_width(),
                                 .block_pages = job.block_pages,
                                 .block_page_bytes = job.block_page_bytes});
  device.attention(step,
                   AttentionJob{.kv = job.kv,
                                .heads = shape.heads,
                                .window = job.window,
                                .sink = job.sink,
                                .scale = shape.attention_scale != 0.0f
                                             ? shape.attention_scale
                                             : 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                                .sinks = layer.sinks,
                                .q = q,
                                .q_stride = shape.qkv_width(),
                                .out = attended,
                                .block_pages = job.block_pages,
                                .block_page_bytes = job.block_page_bytes,
                                .causal_in_block = job.causal_in_block});
  if (shape.attention_gate) {
    device.sigmoid_mul(q + shape.q_width(), shape.qkv_width(), step.rows, shape.q_width(),
                       attended);
  }
  // What is normed or convolved first joins the stream on a branch of its own.
  const bool normed_out = layer.attention_out_norm.gain != nullptr;
  const bool branches = normed_out || layer.attention_conv;
  float* joined = branches ? scratch.branch.as<float>() : stream;
  const LinearSegment out[] = {{layer.o, 0}};
  device.linear(out, compute_fp32, attended, shape.q_width(), step.rows, joined, shape.hidden,
                !branches);
  if (layer.o_bias != nullptr) {
    device.add(layer.o_bias, 0, step.rows, shape.hidden, joined, shape.hidden);
  }
  if (!branches) return;
  if (layer.attention_conv) layer.attention_conv.end(device, step, scratch, joined);
  if (normed_out) {
    device.rms_norm(joined, shape.hidden, step.rows, shape.hidden, layer.attention_out_norm, joined,
                    shape.hidden);
  }
  device.add(joined, shape.hidden, step.rows, shape.hidden, stream, shape.hidden);
}

void gather_normed(Device& device, const StepTable& step, Scratch& scratch, NormWeights norm,
                   std::uint32_t hidden) {
  const float* stream = scratch.hidden.as<float>();
  float* normed = scratch.normed.as<float>();
  for (std::size_t i = 0; i < step.logit_rows.size(); ++i) {
    device.rms_norm(stream + std::size_t{step.logit_rows[i]} * hidden, hidden, 1, hidden, norm,
                    normed + i * hidden, hidden);
  }
}

}  // namespace drafthouse
