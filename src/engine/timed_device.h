#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace drafthouse {

// One operation of a pass, summed over its calls.
struct OperationTime {
  std::string_view name;
  std::uint32_t outputs = 0;  // of all segments; only for linear layers
  std::uint32_t inputs = 0;
  std::uint64_t calls = 0;
  double seconds = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t experts = 0;  // whose weights were read, summed over the calls
};

// A device that measures what another one spends on each operation, for benches. While it is off it
// only passes calls on. The other device must outlive it.
class TimedDevice final : public Device {
 public:
  explicit TimedDevice(Device& device) : device_(device) {}

  void measure(bool on) { on_ = on; }
  // Operations since the last clear(), in order of their first call.
  const std::vector<OperationTime>& operations() const { return operations_; }
  double seconds() const;
  void clear() { operations_.clear(); }

  void watch(const std::atomic<bool>* cancel) override { device_.watch(cancel); }
  bool given_up() const override { return device_.given_up(); }
  void embed(const StepTable& step, const PackedMatrix& table, float scale, float* out) override;
  void linear(std::span<const LinearSegment> segments, bool fp32, const float* x,
              std::size_t x_stride, std::uint32_t rows, float* out, std::size_t out_stride,
              bool accumulate) override;
  void rms_norm(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
                NormWeights norm, float* out, std::size_t out_stride) override;
  void gate_mul(const GateJob& job) override;
  void add(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
           float* out, std::size_t out_stride) override;
  void scale(float* values, std::size_t count, float factor) override;
  void softcap(float* values, std::size_t count, float cap) override;
  void route(const RouteJob& job) override;
  void experts(const ExpertsJob& job) override;
  void rope_kv(const StepTable& step, const RopeKvJob& job) override;
  void attention(const StepTable& step, const AttentionJob& job) override;
  void block_convolution(const StepTable& step, const BlockConvolutionJob& job) override;
  void convolution(const StepTable& step, const ConvolutionJob& job) override;
  void delta_rule(const StepTable& step, const DeltaRuleJob& job) override;
  void gated_rms_norm(const float* in, const float* gate, std::size_t gate_stride,
                      std::uint32_t rows, std::uint32_t heads, std::uint32_t width,
                      NormWeights norm, float* out) override;
  void sigmoid_mul(const float* gate, std::size_t gate_stride, std::uint32_t rows,
                   std::uint32_t width, float* inout) override;
  void sigmoid_scale(const float* gate, std::uint32_t rows, std::uint32_t width,
                     float* inout) override;
  void multiply(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                std::uint32_t rows, std::uint32_t width, float* out,
                std::size_t out_stride) override;
  void capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                   std::uint32_t width, float* out, std::size_t out_stride) override;
  void argmax(const float* logits, std::uint32_t rows, std::size_t stride, std::uint32_t count,
              std::uint32_t excluded, std::uint32_t* out) override;
  void log_probabilities(const float* logits, std::uint32_t rows, std::size_t stride,
                         std::uint32_t count, const std::uint32_t* ids, double* logprob) override;
  void group_maxima(const float* values, std::uint32_t count, float* maxima) override;
  void group_weights(const float* values, std::uint32_t count, float shift, float scale,
                     float* sums) override;
  void weights(const float* values, std::uint32_t count, float shift, float scale,
               float* out) override;

 private:
  template <class Call>
  void timed(const OperationTime& what, Call&& call);

  Device& device_;
  bool on_ = false;
  std::vector<OperationTime> operations_;
};

}  // namespace drafthouse
