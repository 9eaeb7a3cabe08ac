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

}  // namespace

Status LayerShape::check(const std::string& label) const {
  if (head_dim != 0 && head_dim % kHeadDimStep == 0 && head_dim <= kHeadDimMax) return {};
  return Status(
      Code::unsupported,
      fmt::format("{}: attention heads of {} values are not supported; multiples of {} up "
                  "to {} are",
                  label, head_dim, kHeadDimStep, kHeadDimMax));
}

void DecoderLayer::declare(WeightLoader& loader, const std::string& prefix, const LayerShape& shape,
                           bool qk_norm, bool interleaved_rope_rows, bool own_kv) {
  const auto norm = [&](NormWeights& out, const char* name, std::uint32_t width) {
    out.eps = shape.eps;
    loader.vector(&out.gain, prefix + name, width);
  };
  const auto order = [&](std::uint32_t rows) {
    return interleaved_rope_rows ? half_split_order(rows, shape.head_dim) : RowOrder{};
  };
  norm(attention_norm, "input_layernorm.weight", shape.hidden);
  loader.matrix(&q, prefix + "self_attn.q_proj.weight", shape.q_width(), shape.hidden,
                order(shape.q_width()));
  if (own_kv) {
    loader.matrix(&k, prefix + "self_attn.k_proj.weight", shape.kv_width(), shape.hidden,
                  order(shape.kv_width()));
    loader.matrix(&v, prefix + "self_attn.v_proj.weight", shape.kv_width(), shape.hidden);
  }
  loader.matrix(&o, prefix + "self_attn.o_proj.weight", shape.hidden, shape.q_width());
  if (qk_norm) {
    norm(q_norm, "self_attn.q_norm.weight", shape.head_dim);
    if (own_kv) norm(k_norm, "self_attn.k_norm.weight", shape.head_dim);
  }
  norm(mlp_norm, "post_attention_layernorm.weight", shape.hidden);
  loader.matrix(&gate, prefix + "mlp.gate_proj.weight", shape.intermediate, shape.hidden);
  loader.matrix(&up, prefix + "mlp.up_proj.weight", shape.intermediate, shape.hidden);
  loader.matrix(&down, prefix + "mlp.down_proj.weight", shape.hidden, shape.intermediate);
}

std::size_t DecoderLayer::matrix_bytes() const {
  std::size_t bytes = 0;
  each_matrix([&](const PackedMatrix& matrix) { bytes += matrix.bytes(); });
  return bytes;
}

std::uint64_t DecoderLayer::matrix_weights() const {
  std::uint64_t weights = 0;
  each_matrix([&](const PackedMatrix& matrix) {
    weights += std::uint64_t{matrix.outputs} * matrix.inputs;
  });
  return weights;
}

void run_attention(Device& device, const StepTable& step, Scratch& scratch,
                   const DecoderLayer& layer, const LayerShape& shape, const LayerAttentionJob& job,
                   bool compute_fp32) {
  float* stream = scratch.hidden.as<float>();
  float* normed = scratch.normed.as<float>();
  float* q = scratch.qkv.as<float>();
  float* k = q + shape.q_width();
  float* v = k + shape.kv_width();
  float* attended = scratch.attended.as<float>();

  device.rms_norm(stream, shape.hidden, step.rows, shape.hidden, layer.attention_norm, normed,
                  shape.hidden);
  const LinearSegment in[] = {{layer.q, 0},
                              {layer.k, shape.q_width()},
                              {layer.v, shape.q_width() + shape.kv_width()}};
  device.linear(std::span(in).first(job.own_kv ? 3 : 1), compute_fp32, normed, shape.hidden,
                step.rows, q, shape.qkv_width(), false);
  device.rope_kv(step, RopeKvJob{.kv = job.kv,
                                 .heads = shape.heads,
                                 .rotary = &step.rotary[job.rotary],
                                 .q_norm = layer.q_norm,
                                 .k_norm = layer.k_norm,
                                 .q = q,
                                 .k = job.own_kv ? k : nullptr,
                                 .v = v,
                                 .stride = shape.qkv_width(),
                                 .block_pages = job.block_pages,
                                 .block_page_bytes = job.block_page_bytes});
  device.attention(
      step, AttentionJob{.kv = job.kv,
                         .heads = shape.heads,
                         .window = job.window,
                         .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                         .q = q,
                         .q_stride = shape.qkv_width(),
                         .out = attended,
                         .block_pages = job.block_pages,
                         .block_page_bytes = job.block_page_bytes,
                         .causal_in_block = job.causal_in_block});
  const LinearSegment out[] = {{layer.o, 0}};
  device.linear(out, compute_fp32, attended, shape.q_width(), step.rows, stream, shape.hidden, true);
}

void run_mlp(Device& device, const StepTable& step, Scratch& scratch, const DecoderLayer& layer,
             const LayerShape& shape, bool compute_fp32) {
  float* stream = scratch.hidden.as<float>();
  float* normed = scratch.normed.as<float>();
  float* gate_up = scratch.gate_up.as<float>();
  float* gated = scratch.gated.as<float>();
  device.rms_norm(stream, shape.hidden, step.rows, shape.hidden, layer.mlp_norm, normed,
                  shape.hidden);
  const LinearSegment in[] = {{layer.gate, 0}, {layer.up, shape.intermediate}};
  device.linear(in, compute_fp32, normed, shape.hidden, step.rows, gate_up,
                std::size_t{2} * shape.intermediate, false);
  device.silu_mul(gate_up, step.rows, shape.intermediate, gated);
  const LinearSegment down[] = {{layer.down, 0}};
  device.linear(down, compute_fp32, gated, shape.intermediate, step.rows, stream, shape.hidden,
                true);
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
