// Recurrent layers of a CPU. Rows of a sequence are worked off in order of position; what runs
// beside each other are channels, or heads.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "device/cpu_device.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kChannelsTaken = 512;
constexpr float kDeltaNormEps = 1e-6f;

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// The convolution of some channels of one span.
class SpanConvolution {
 public:
  SpanConvolution(const Kernels& kernels, const ConvolutionJob& job, const StepSpan& span,
                  std::uint32_t first_channel, std::uint32_t channels)
      : kernels_(kernels), job_(job), span_(span), first_(first_channel), channels_(channels) {}

  void run() {
    const std::uint32_t taps = job_.layout.kernel;
    const float* rows[kConvTapsMax];
    const float* weights[kConvTapsMax];
    for (std::uint32_t j = 0; j < taps; ++j) weights[j] = job_.weights[j] + first_;
    for (std::uint32_t row = 0; row < span_.rows; ++row) {
      const std::uint32_t position = span_.first_position + row;
      for (std::uint32_t j = 0; j < taps; ++j) {
        const std::uint32_t back = taps - 1 - j;
        rows[j] = back > position ? nullptr : input(position - back);
      }
      kernels_.short_conv(
          {.kernel = taps,
           .channels = channels_,
           .taps = rows,
           .weights = weights,
           .silu = job_.silu,
           .out = job_.out + std::size_t{span_.first_row + row} * job_.out_stride + first_});
      keep(position, rows + 1);
    }
  }

 private:
  // Inputs of a position that is not after the current row.
  const float* input(std::uint32_t position) const {
    const RecurrentLayout& layout = job_.layout;
    const std::uint32_t begin = span_.first_position;
    if (position >= begin) {
      return job_.x + std::size_t{span_.first_row + position - begin} * job_.x_stride + first_;
    }
    const std::uint32_t chunk = begin / kPagePositions;
    const std::uint32_t chunk_begin = chunk * kPagePositions;
    if (position >= chunk_begin) {
      return layout.ring_inputs(span_.pages[layout.ring_group][chunk]) +
             std::size_t{position - chunk_begin} * layout.channels + first_;
    }
    const std::uint32_t tail = position + layout.kernel - 1 - chunk_begin;
    return layout.tail(span_.pages[layout.state_group][chunk - 1]) +
           std::size_t{tail} * layout.channels + first_;
  }

  // Stores the inputs of `position`, which are the last of `tail`, for later rows.
  void keep(std::uint32_t position, const float* const* tail) {
    const RecurrentLayout& layout = job_.layout;
    const std::uint32_t chunk = position / kPagePositions;
    const std::uint32_t slot = position % kPagePositions;
    const std::size_t bytes = channels_ * sizeof(float);
    float* ring = layout.ring_inputs(span_.pages[layout.ring_group][chunk]);
    std::memcpy(ring + std::size_t{slot} * layout.channels + first_, input(position), bytes);
    if (slot + 1 != kPagePositions) return;
    float* kept = layout.tail(span_.pages[layout.state_group][chunk]);
    for (std::uint32_t j = 0; j + 1 < layout.kernel; ++j) {
      std::memcpy(kept + std::size_t{j} * layout.channels + first_, tail[j], bytes);
    }
  }

  const Kernels& kernels_;
  const ConvolutionJob& job_;
  const StepSpan& span_;
  std::uint32_t first_;
  std::uint32_t channels_;
};

// The delta rule of one key head of one span, with the value heads that go with it.
void run_delta_head(const Kernels& kernels, const DeltaRuleJob& job, const StepSpan& span,
                    std::uint32_t key_head) {
  const RecurrentLayout& layout = job.layout;
  const std::uint32_t group = layout.value_heads / layout.key_heads;
  const std::size_t keys_at = std::size_t{layout.key_heads + key_head} * layout.key_dim;
  const std::size_t values_at = std::size_t{2} * layout.key_heads * layout.key_dim;
  for (std::uint32_t done = 0; done < span.rows;) {
    const std::uint32_t position = span.first_position + done;
    const std::uint32_t chunk = position / kPagePositions;
    const std::uint32_t slot = position % kPagePositions;
    const std::uint32_t rows = std::min(span.rows - done, kPagePositions - slot);
    const std::size_t first_row = span.first_row + done;
    std::byte* ring = span.pages[layout.ring_group][chunk];
    float* keys = layout.ring_keys(ring, key_head);
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::memcpy(keys + std::size_t{slot + row} * layout.key_dim,
                  job.qkv + (first_row + row) * job.qkv_stride + keys_at,
                  layout.key_dim * sizeof(float));
    }
    for (std::uint32_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const float* state =
          chunk == 0 ? nullptr : layout.head_state(span.pages[layout.state_group][chunk - 1], head);
      const DeltaChunk open{.key_dim = layout.key_dim,
                            .value_dim = layout.value_dim,
                            .state = state,
                            .keys = keys,
                            .updates = layout.ring_updates(ring, head),
                            .decays = layout.ring_decays(ring, head)};
      const float* qkv = job.qkv + first_row * job.qkv_stride;
      kernels.delta_rows(
          {.chunk = open,
           .first = slot,
           .rows = rows,
           .q = qkv + std::size_t{key_head} * layout.key_dim,
           .q_stride = job.qkv_stride,
           .v = qkv + values_at + std::size_t{head} * layout.value_dim,
           .v_stride = job.qkv_stride,
           .decay = job.a + first_row * job.gate_stride + head,
           .beta = job.b + first_row * job.gate_stride + head,
           .gate_stride = job.gate_stride,
           .out = job.out + first_row * job.out_stride + std::size_t{head} * layout.value_dim,
           .out_stride = job.out_stride});
      if (slot + rows == kPagePositions) {
        kernels.delta_fold(open, layout.head_state(span.pages[layout.state_group][chunk], head));
      }
    }
    done += rows;
  }
}

}  // namespace

void CpuDevice::convolution(const StepTable& step, const ConvolutionJob& job) {
  assert(job.layout.kernel >= 1 && job.layout.kernel <= kConvTapsMax);
  const std::uint32_t parts = ceil_div(job.layout.channels, kChannelsTaken);
  const auto spans = static_cast<std::uint32_t>(step.spans.size());
  const std::size_t items = std::size_t{step.rows} * job.layout.channels * (job.layout.kernel + 4);
  for_chunks(spans * parts, items, [&](unsigned, std::uint32_t chunk) {
    const std::uint32_t first = chunk % parts * kChannelsTaken;
    SpanConvolution(kernels_, job, step.spans[chunk / parts], first,
                    std::min(kChannelsTaken, job.layout.channels - first))
        .run();
  });
}

void CpuDevice::delta_rule(const StepTable& step, const DeltaRuleJob& job) {
  const RecurrentLayout& layout = job.layout;
  const std::uint32_t dim = layout.key_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const std::size_t qk = std::size_t{2} * layout.key_heads * dim;
  for_chunks(step.rows, step.rows * qk * 2, [&](unsigned, std::uint32_t row) {
    float* q = job.qkv + row * job.qkv_stride;
    float* k = q + std::size_t{layout.key_heads} * dim;
    for (std::size_t head = 0; head < layout.key_heads; ++head) {
      kernels_.l2_norm(q + head * dim, q + head * dim, dim, kDeltaNormEps, scale);
      kernels_.l2_norm(k + head * dim, k + head * dim, dim, kDeltaNormEps, 1.0f);
    }
    float* a = job.a + row * job.gate_stride;
    float* b = job.b + row * job.gate_stride;
    kernels_.delta_gates(a, b, a, b, job.a_log, job.dt_bias, layout.value_heads);
  });
  const auto spans = static_cast<std::uint32_t>(step.spans.size());
  const std::size_t items =
      std::size_t{step.rows} * layout.value_heads * dim * layout.value_dim / 4;
  for_chunks(spans * layout.key_heads, items, [&](unsigned, std::uint32_t chunk) {
    run_delta_head(kernels_, job, step.spans[chunk / layout.key_heads], chunk % layout.key_heads);
  });
}

void CpuDevice::gated_rms_norm(const float* in, const float* gate, std::size_t gate_stride,
                               std::uint32_t rows, std::uint32_t heads, std::uint32_t width,
                               NormWeights norm, float* out) {
  for_chunks(rows, std::size_t{rows} * heads * width * 4, [&](unsigned, std::uint32_t row) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t at = (std::size_t{row} * heads + head) * width;
      kernels_.gated_rms_norm(out + at, in + at, norm.gain, gate + row * gate_stride + head * width,
                              width, norm.eps);
    }
  });
}

void CpuDevice::sigmoid_mul(const float* gate, std::size_t gate_stride, std::uint32_t rows,
                            std::uint32_t width, float* inout) {
  for_chunks(rows, std::size_t{rows} * width * 4, [&](unsigned, std::uint32_t row) {
    float* at = inout + std::size_t{row} * width;
    kernels_.sigmoid_mul(at, gate + row * gate_stride, at, width);
  });
}

void CpuDevice::sigmoid_scale(const float* gate, std::uint32_t rows, std::uint32_t width,
                              float* inout) {
  for_chunks(rows, std::size_t{rows} * width, [&](unsigned, std::uint32_t row) {
    const float one = 1.0f;
    float open = 0.0f;
    kernels_.sigmoid_mul(&open, gate + row, &one, 1);
    float* at = inout + std::size_t{row} * width;
    for (std::uint32_t i = 0; i < width; ++i) at[i] *= open;
  });
}

void CpuDevice::multiply(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                         std::uint32_t rows, std::uint32_t width, float* out,
                         std::size_t out_stride) {
  for_chunks(rows, std::size_t{rows} * width, [&](unsigned, std::uint32_t row) {
    kernels_.multiply(out + row * out_stride, a + row * a_stride, b + row * b_stride, width);
  });
}

}  // namespace drafthouse
