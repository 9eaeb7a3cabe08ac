#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "device/hooked_kernels.h"
#include "device/work_ranges.h"
#include "drafthouse/status.h"

namespace drafthouse {

// The CPU: the kernels of one instruction set on a pool of threads. How the work is cut never
// changes a result: every output is computed by one thread in one order.
class CpuDevice final : public Device {
 public:
  // Bounds of what will be asked for; scratch memory is allocated once, from these.
  struct Limits {
    std::size_t activation_bytes = 0;  // largest act_bytes() of a linear layer's input
    std::uint32_t heads_max = 0;
    std::uint32_t head_dim_max = 0;
    std::uint32_t positions_max = 0;
  };
  // The pool and the ledger must outlive the device, and so must whatever `hooks` were bound by.
  static Result<std::unique_ptr<CpuDevice>> create(ThreadPool& pool, Isa isa, const Limits& limits,
                                                   MemoryLedger& ledger,
                                                   const HookTable& hooks = {});

  // The built-in kernels, without hooks.
  const Kernels& kernels() const { return kernels_.original(); }
  ThreadPool& pool() const { return pool_; }

  void watch(const std::atomic<bool>* cancel) override {
    cancel_ = cancel;
    given_up_.store(false, std::memory_order_relaxed);
  }
  bool given_up() const override { return given_up_.load(std::memory_order_relaxed); }
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
  // Below this many element operations a second thread costs more than it saves.
  static constexpr std::size_t kSerialItems = 12288;

  CpuDevice(ThreadPool& pool, const HookedKernels& kernels);

  // Whether the next piece of work is to be left out. On any thread.
  bool unwanted() {
    if (cancel_ == nullptr) return false;
    if (given_up()) return true;
    if (!cancel_->load(std::memory_order_relaxed)) return false;
    given_up_.store(true, std::memory_order_relaxed);
    return true;
  }

  // Runs units on the pool, at most `most` neighbours at once. A thread gets the same share of
  // every operation: where units are columns or heads in the order of linear(), what it reads is
  // what it wrote, in its own caches still.
  template <class Work>
  void for_ranges(std::uint32_t units, std::uint32_t most, Work&& work) {
    ranges_.reset(units);
    pool_.run(ranges_.stretches(), [&](unsigned thread, std::uint32_t) {
      for (;;) {
        const WorkRanges::Range range = ranges_.take(thread, most);
        if (range.empty() || unwanted()) return;
        work(thread, range);
      }
    });
  }
  // Runs chunks on the pool, or here when the whole is too small to be worth waking a thread.
  template <class Work>
  void for_chunks(std::uint32_t chunks, std::size_t work_items, Work&& work) {
    if (work_items >= kSerialItems) {
      for_ranges(chunks, 1,
                 [&](unsigned thread, WorkRanges::Range range) { work(thread, range.begin); });
      return;
    }
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) work(0u, chunk);
  }
  // Column blocks [begin, end) of one matrix of a product of several, with its own packed input and
  // rows.
  struct LinearPart {
    PackedMatrix weights;
    std::uint32_t begin;
    std::uint32_t end;
    const std::byte* x;
    std::uint32_t rows;
    float* out;               // the matrix's first column
    std::uint32_t first = 0;  // column blocks of all parts before it
  };
  // Packs rows into `tiles`, which lies in tiles_.
  void pack(ActKind act, const float* x, std::size_t x_stride, std::uint32_t rows,
            std::uint32_t inputs, std::byte* tiles);
  // The products of all of parts_, cut among the threads by column blocks.
  void multiply(ActKind act, std::size_t out_stride, bool accumulate);
  void sort_by_expert(const ExpertsJob& job);
  template <class Matrices>
  void multiply_experts(const ExpertsJob& job, const float* x, std::uint32_t inputs, float* out,
                        std::size_t out_stride, Matrices&& matrices);

  // Queries of a few neighbouring key/value heads: for each, some rows of a step span × some query
  // heads of the group, over the position spans [span_begin, span_end).
  struct AttentionTask {
    std::uint32_t step_span, kv_head, kv_heads, first_row, rows, first_head, heads;
    std::uint32_t span_begin, span_end;
    float* partial;  // null: the whole attention of these queries, written to the job's output

    std::uint32_t queries() const { return rows * heads; }  // of one key/value head
    bool same_queries(const AttentionTask& other) const {
      return step_span == other.step_span && kv_head == other.kv_head &&
             first_row == other.first_row && first_head == other.first_head;
    }
  };
  struct Softmax;  // running softmax of a tile of queries
  static constexpr std::uint32_t kHeadsTogether = 4;

  void plan_attention(const StepTable& step, const AttentionJob& job);
  void attend(const StepTable& step, const AttentionJob& job, const AttentionTask& task,
              unsigned thread);
  void attend_span(const StepTable& step, const AttentionJob& job, const AttentionTask& task,
                   std::uint32_t span, const float* queries, Softmax softmax[kHeadsTogether]);
  void attend_block(const StepTable& step, const AttentionJob& job, const AttentionTask& task,
                    std::uint32_t kv_head, const float* queries, Softmax& softmax);
  std::uint32_t heads_together(const AttentionJob& job, std::size_t tasks) const;
  void add_sink(float sink, float* m, float* l, float* acc, std::uint32_t dim);
  void merge_partials(const StepTable& step, const AttentionJob& job);

  ThreadPool& pool_;
  const HookedKernels kernels_;
  const std::atomic<bool>* cancel_ = nullptr;
  std::atomic<bool> given_up_{false};
  WorkRanges ranges_;  // what is left of the running operation
  std::vector<LinearPart> parts_;
  // Rows of a pass sorted by expert: where each expert's begin, and where row r's i-th choice
  // stands.
  std::vector<std::uint32_t> expert_begin_;
  std::vector<std::uint32_t> expert_next_;
  std::vector<std::uint32_t> expert_place_;
  Buffer tiles_;      // packed activations
  Buffer attention_;  // per thread and head: queries, running softmax of a tile, twice
  std::size_t attention_stride_ = 0;
  Buffer partials_;  // spans of one attention call that were computed apart
  std::size_t partial_floats_ = 0;
  std::vector<AttentionTask> tasks_;
};

}  // namespace drafthouse
