// Experts on the CPU: the rows of a pass are sorted by expert, so that each expert's weights are
// read once, and every row's results are put together again in the order of its experts. A row's
// products are the same whatever other rows its experts have.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "device/cpu_device.h"

namespace drafthouse {

void CpuDevice::route(const RouteJob& job) {
  assert(job.chosen >= 1 && job.chosen <= job.experts);
  for_chunks(job.rows, std::size_t{job.rows} * job.experts * 4, [&](unsigned, std::uint32_t row) {
    float* p = job.logits + std::size_t{row} * job.experts;
    std::uint32_t* ids = job.ids + std::size_t{row} * job.chosen;
    float* weights = job.weights + std::size_t{row} * job.chosen;
    kernels_.softmax(p, job.experts);
    for (std::uint32_t i = 0; i < job.chosen; ++i) {
      std::uint32_t best = 0;
      for (std::uint32_t e = 1; e < job.experts; ++e) {
        if (p[e] > p[best]) best = e;
      }
      ids[i] = best;
      weights[i] = p[best];
      p[best] = -1.0f;
    }
    // Ascending by expert: the order in which a row's results are summed.
    for (std::uint32_t i = 1; i < job.chosen; ++i) {
      for (std::uint32_t j = i; j > 0 && ids[j] < ids[j - 1]; --j) {
        std::swap(ids[j], ids[j - 1]);
        std::swap(weights[j], weights[j - 1]);
      }
    }
    if (job.normalise) {
      float sum = 0.0f;
      for (std::uint32_t i = 0; i < job.chosen; ++i) sum += weights[i];
      for (std::uint32_t i = 0; i < job.chosen; ++i) weights[i] /= sum;
    }
    for (std::uint32_t i = 0; job.expert_scale != nullptr && i < job.chosen; ++i) {
      weights[i] *= job.expert_scale[ids[i]];
    }
  });
}

void CpuDevice::sort_by_expert(const ExpertsJob& job) {
  const std::uint32_t slots = job.rows * job.chosen;
  expert_begin_.assign(job.experts.size() + 1, 0);
  for (std::uint32_t i = 0; i < slots; ++i) ++expert_begin_[job.ids[i] + 1];
  for (std::size_t e = 0; e < job.experts.size(); ++e) expert_begin_[e + 1] += expert_begin_[e];
  expert_place_.resize(slots);
  expert_next_.assign(expert_begin_.begin(), expert_begin_.end() - 1);
  for (std::uint32_t i = 0; i < slots; ++i) expert_place_[i] = expert_next_[job.ids[i]]++;
}

// One matrix product for every expert that has rows: `matrices(e)` times rows of x [slots][inputs].
template <class Matrices>
void CpuDevice::multiply_experts(const ExpertsJob& job, const float* x, std::uint32_t inputs,
                                 float* out, std::size_t out_stride, Matrices&& matrices) {
  for (const ActKind act : {ActKind::f32, ActKind::bf16, ActKind::int8}) {
    parts_.clear();
    std::byte* tiles = tiles_.data();
    for (std::size_t e = 0; e < job.experts.size(); ++e) {
      const std::uint32_t first = expert_begin_[e];
      const std::uint32_t rows = expert_begin_[e + 1] - first;
      if (rows == 0) continue;
      bool packed = false;
      for (const LinearSegment& segment : matrices(job.experts[e])) {
        if (act_kind_for(segment.weights.kind, job.fp32) != act) continue;
        parts_.push_back({segment.weights, 0, column_blocks(segment.weights.outputs), tiles, rows,
                          out + first * out_stride + segment.out_column});
        packed = true;
      }
      if (!packed) continue;
      pack(act, x + std::size_t{first} * inputs, inputs, rows, inputs, tiles);
      tiles += act_bytes(act, rows, inputs);
    }
    if (!parts_.empty()) multiply(act, out_stride, false);
  }
}

void CpuDevice::experts(const ExpertsJob& job) {
  const std::uint32_t slots = job.rows * job.chosen;
  const std::uint32_t width = job.intermediate;
  if (given_up()) return;  // so may route() have, and what it left are no experts
  sort_by_expert(job);
  for_chunks(slots, std::size_t{slots} * job.hidden, [&](unsigned, std::uint32_t i) {
    std::memcpy(job.slots + std::size_t{expert_place_[i]} * job.hidden,
                job.x + std::size_t{i / job.chosen} * job.hidden, job.hidden * sizeof(float));
  });
  multiply_experts(job, job.slots, job.hidden, job.gate_up, std::size_t{2} * width,
                   [width](const ExpertWeights& expert) {
                     return std::array<LinearSegment, 2>{LinearSegment{expert.gate, 0},
                                                         LinearSegment{expert.up, width}};
                   });
  for_chunks(slots, std::size_t{slots} * width, [&](unsigned, std::uint32_t i) {
    const ExpertWeights& expert = job.experts[job.ids[i]];
    if (expert.gate_bias == nullptr) return;
    float* gate = job.gate_up + std::size_t{expert_place_[i]} * 2 * width;
    for (std::uint32_t c = 0; c < width; ++c) gate[c] += expert.gate_bias[c];
    for (std::uint32_t c = 0; c < width; ++c) gate[width + c] += expert.up_bias[c];
  });
  gate_mul(GateJob{.gating = job.gating,
                   .rows = slots,
                   .width = width,
                   .gate = job.gate_up,
                   .gate_stride = std::size_t{2} * width,
                   .up = job.gate_up + width,
                   .up_stride = std::size_t{2} * width,
                   .out = job.gated});
  multiply_experts(job, job.gated, width, job.slots, job.hidden, [](const ExpertWeights& expert) {
    return std::array<LinearSegment, 1>{LinearSegment{expert.down, 0}};
  });
  constexpr std::uint32_t kColumns = 256;
  const std::uint32_t parts = (job.hidden + kColumns - 1) / kColumns;
  for_chunks(job.rows * parts, std::size_t{slots} * job.hidden, [&](unsigned, std::uint32_t chunk) {
    const std::uint32_t row = chunk / parts;
    const std::uint32_t column = chunk % parts * kColumns;
    const std::uint32_t count = std::min(kColumns, job.hidden - column);
    float sum[kColumns] = {};
    for (std::uint32_t i = row * job.chosen; i < (row + 1) * job.chosen; ++i) {
      const float weight = job.weights[i];
      const float* bias = job.experts[job.ids[i]].down_bias;
      const float* part = job.slots + std::size_t{expert_place_[i]} * job.hidden + column;
      for (std::uint32_t c = 0; c < count; ++c) {
        sum[c] += weight * (bias != nullptr ? part[c] + bias[column + c] : part[c]);
      }
    }
    float* out = job.out + std::size_t{row} * job.hidden + column;
    for (std::uint32_t c = 0; c < count; ++c) out[c] = job.accumulate ? out[c] + sum[c] : sum[c];
  });
}

}  // namespace drafthouse
