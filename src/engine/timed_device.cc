#include "engine/timed_device.h"

#include <algorithm>
#include <chrono>

namespace drafthouse {

double TimedDevice::seconds() const {
  double sum = 0;
  for (const OperationTime& operation : operations_) sum += operation.seconds;
  return sum;
}

template <class Call>
void TimedDevice::timed(const OperationTime& what, Call&& call) {
  if (!on_) {
    call();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  call();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (OperationTime& known : operations_) {
    if (known.name != what.name || known.outputs != what.outputs || known.inputs != what.inputs) {
      continue;
    }
    ++known.calls;
    known.seconds += seconds;
    known.weight_bytes += what.weight_bytes;
    known.experts += what.experts;
    return;
  }
  operations_.push_back(what);
  operations_.back().calls = 1;
  operations_.back().seconds = seconds;
}

void TimedDevice::embed(const StepTable& step, const PackedMatrix& table, float scale, float* out) {
  timed({.name = "embed"}, [&] { device_.embed(step, table, scale, out); });
}

void TimedDevice::linear(std::span<const LinearSegment> segments, bool fp32, const float* x,
                         std::size_t x_stride, std::uint32_t rows, float* out,
                         std::size_t out_stride, bool accumulate) {
  OperationTime what{.name = "linear"};
  for (const LinearSegment& segment : segments) {
    what.outputs += segment.weights.outputs;
    what.inputs = segment.weights.inputs;
    what.weight_bytes += segment.weights.bytes();
  }
  timed(what,
        [&] { device_.linear(segments, fp32, x, x_stride, rows, out, out_stride, accumulate); });
}

void TimedDevice::rms_norm(const float* in, std::size_t in_stride, std::uint32_t rows,
                           std::uint32_t width, NormWeights norm, float* out,
                           std::size_t out_stride) {
  timed({.name = "rms_norm"},
        [&] { device_.rms_norm(in, in_stride, rows, width, norm, out, out_stride); });
}

void TimedDevice::gate_mul(const GateJob& job) {
  timed({.name = "gate_mul"}, [&] { device_.gate_mul(job); });
}

void TimedDevice::add(const float* in, std::size_t in_stride, std::uint32_t rows,
                      std::uint32_t width, float* out, std::size_t out_stride) {
  timed({.name = "add"}, [&] { device_.add(in, in_stride, rows, width, out, out_stride); });
}

void TimedDevice::scale(float* values, std::size_t count, float factor) {
  timed({.name = "scale"}, [&] { device_.scale(values, count, factor); });
}

void TimedDevice::softcap(float* values, std::size_t count, float cap) {
  timed({.name = "softcap"}, [&] { device_.softcap(values, count, cap); });
}

void TimedDevice::route(const RouteJob& job) {
  timed({.name = "route"}, [&] { device_.route(job); });
}

void TimedDevice::experts(const ExpertsJob& job) {
  OperationTime what{.name = "experts"};
  what.outputs = job.hidden;
  what.inputs = job.intermediate;
  for (std::size_t e = 0; e < job.experts.size(); ++e) {
    const auto* end = job.ids + std::size_t{job.rows} * job.chosen;
    if (std::find(job.ids, end, e) == end) continue;
    const ExpertWeights& expert = job.experts[e];
    ++what.experts;
    what.weight_bytes += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
  }
  timed(what, [&] { device_.experts(job); });
}

void TimedDevice::rope_kv(const StepTable& step, const RopeKvJob& job) {
  timed({.name = "rope_kv"}, [&] { device_.rope_kv(step, job); });
}

void TimedDevice::attention(const StepTable& step, const AttentionJob& job) {
  timed({.name = "attention"}, [&] { device_.attention(step, job); });
}

void TimedDevice::block_convolution(const StepTable& step, const BlockConvolutionJob& job) {
  timed({.name = "block convolution"}, [&] { device_.block_convolution(step, job); });
}

void TimedDevice::convolution(const StepTable& step, const ConvolutionJob& job) {
  timed({.name = "convolution"}, [&] { device_.convolution(step, job); });
}

void TimedDevice::delta_rule(const StepTable& step, const DeltaRuleJob& job) {
  timed({.name = "delta_rule"}, [&] { device_.delta_rule(step, job); });
}

void TimedDevice::gated_rms_norm(const float* in, const float* gate, std::size_t gate_stride,
                                 std::uint32_t rows, std::uint32_t heads, std::uint32_t width,
                                 NormWeights norm, float* out) {
  timed({.name = "gated_rms_norm"},
        [&] { device_.gated_rms_norm(in, gate, gate_stride, rows, heads, width, norm, out); });
}

void TimedDevice::sigmoid_mul(const float* gate, std::size_t gate_stride, std::uint32_t rows,
                              std::uint32_t width, float* inout) {
  timed({.name = "sigmoid_mul"},
        [&] { device_.sigmoid_mul(gate, gate_stride, rows, width, inout); });
}

void TimedDevice::sigmoid_scale(const float* gate, std::uint32_t rows, std::uint32_t width,
                                float* inout) {
  timed({.name = "sigmoid_scale"}, [&] { device_.sigmoid_scale(gate, rows, width, inout); });
}

void TimedDevice::multiply(const float* a, std::size_t a_stride, const float* b,
                           std::size_t b_stride, std::uint32_t rows, std::uint32_t width,
                           float* out, std::size_t out_stride) {
  timed({.name = "multiply"},
        [&] { device_.multiply(a, a_stride, b, b_stride, rows, width, out, out_stride); });
}

void TimedDevice::capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                              std::uint32_t width, float* out, std::size_t out_stride) {
  timed({.name = "capture_tap"},
        [&] { device_.capture_tap(stream, stream_stride, rows, width, out, out_stride); });
}

void TimedDevice::argmax(const float* logits, std::uint32_t rows, std::size_t stride,
                         std::uint32_t count, std::uint32_t excluded, std::uint32_t* out) {
  timed({.name = "argmax"}, [&] { device_.argmax(logits, rows, stride, count, excluded, out); });
}

void TimedDevice::log_probabilities(const float* logits, std::uint32_t rows, std::size_t stride,
                                    std::uint32_t count, const std::uint32_t* ids,
                                    double* logprob) {
  timed({.name = "log_probabilities"},
        [&] { device_.log_probabilities(logits, rows, stride, count, ids, logprob); });
}

void TimedDevice::group_maxima(const float* values, std::uint32_t count, float* maxima) {
  timed({.name = "sample"}, [&] { device_.group_maxima(values, count, maxima); });
}

void TimedDevice::group_weights(const float* values, std::uint32_t count, float shift, float scale,
                                float* sums) {
  timed({.name = "sample"}, [&] { device_.group_weights(values, count, shift, scale, sums); });
}

void TimedDevice::weights(const float* values, std::uint32_t count, float shift, float scale,
                          float* out) {
  timed({.name = "sample"}, [&] { device_.weights(values, count, shift, scale, out); });
}

}  // namespace drafthouse
