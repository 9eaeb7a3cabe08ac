// Passes that are cancelled, and sequences that fail in them: the others' ids, states and
// acceptance are what they are alone.

#include <atomic>
#include <cstring>

#include "tests/exactness/shared_passes.h"

namespace drafthouse {
namespace {

using test::below;
using test::expect_state_of_a_prompt;
using test::follows;
using test::full_run;
using test::Ids;
using test::load;
using test::long_prompt;
using test::pairs;
using test::plain_ids;
using test::prompts;
using test::RealPair;

// A runner of its own on a pair's models, with a budget for its pages.
struct Bounded {
  MemoryBudget budget;
  MemoryLedger ledger;
  std::shared_ptr<PageStore> pages;
  std::unique_ptr<TurnRunner> runner;

  explicit Bounded(Engine::Internals& parts, Device& device) {
    pages = std::make_shared<PageStore>(
        TurnRunner::layout(*parts.target, parts.draft, parts.runner->limits().draft_context),
        &budget);
    runner = TurnRunner::create(device, *parts.target, parts.draft, parts.runner->limits(), pages,
                                ledger)
                 .value();
  }
};

TEST(Failure, ASequenceWithoutRoomLeavesItsNeighboursAlone) {
  const RealPair pair = pairs()[0];
  auto engine = load(pair);
  ASSERT_NE(engine, nullptr);
  Bounded bounded(engine->internals(), *engine->internals().device);
  TurnRunner& runner = *bounded.runner;
  const std::vector<Ids> texts = prompts(pair);
  std::vector<Ids> want;
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < 8; ++i) {
    want.push_back(plain_ids(runner, texts[i], 110));
    sequences.push_back(runner.start(i % 3 != 0).value());
    ASSERT_TRUE(runner.prefill(sequences[i], texts[i], nullptr).ok());
  }
  bounded.pages->trim();
  bounded.budget.set_limit(bounded.budget.used());
  std::mt19937 random(11);
  std::size_t mixed = 0;
  for (int turn = 0; turn < 400; ++turn) {
    std::vector<TurnJob> jobs;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].ids.size() >= texts[i].size() + 100) continue;
      jobs.push_back({.sequence = &sequences[i], .width = 1 + below(random, 16)});
    }
    if (jobs.empty()) break;
    std::vector<std::size_t> before;
    for (const TurnJob& job : jobs) before.push_back(job.sequence->ids.size());
    ASSERT_TRUE(runner.take_turns(jobs, nullptr).ok());
    std::size_t failed = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Sequence& sequence = *jobs[i].sequence;
      if (jobs[i].status.ok()) {
        EXPECT_GT(sequence.ids.size(), before[i]);
        continue;
      }
      ++failed;
      EXPECT_EQ(jobs[i].status.code(), Code::no_memory);
      EXPECT_EQ(sequence.ids.size(), before[i]);
      EXPECT_EQ(sequence.target.length() + 1, before[i]);
      EXPECT_EQ(sequence.target.pending(), 0u);
    }
    if (failed > 0 && failed < jobs.size()) ++mixed;
    // Once nobody gets on, there is room for one slab more.
    if (failed == jobs.size()) bounded.budget.set_limit(bounded.budget.limit() + (2u << 20));
  }
  EXPECT_GT(mixed, 0u);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_GE(sequences[i].ids.size(), texts[i].size() + 100) << i;
    EXPECT_TRUE(follows(sequences[i], texts[i], want[i])) << i;
  }
}

TEST(Failure, APromptWithoutRoomIsAsBeforeAndCanGoOn) {
  const RealPair pair = pairs()[0];
  auto engine = load(pair);
  ASSERT_NE(engine, nullptr);
  Bounded bounded(engine->internals(), *engine->internals().device);
  TurnRunner& runner = *bounded.runner;
  const Ids prompt = long_prompt(pair);
  const Ids want = plain_ids(runner, prompt, 20);
  bounded.pages->trim();
  bounded.budget.set_limit(std::max<std::size_t>(1, bounded.budget.used()));
  Sequence sequence = runner.start(true).value();
  std::size_t failures = 0;
  for (bool ended = false; !ended && failures < 100;) {
    const std::uint32_t length = sequence.target.length();
    const Result<bool> chunk = runner.prefill_chunk(sequence, prompt, 50, nullptr);
    ended = chunk.ok() && chunk.value();
    if (chunk.ok()) continue;
    ++failures;
    EXPECT_EQ(chunk.status().code(), Code::no_memory);
    EXPECT_EQ(sequence.target.length(), length);
    EXPECT_EQ(sequence.draft->length(), length);
    bounded.budget.set_limit(bounded.budget.limit() + (256u << 10));
  }
  EXPECT_GT(failures, 0u);
  bounded.budget.set_limit(0);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(runner.take_turn(sequence, 9, nullptr).ok());
  EXPECT_TRUE(follows(sequence, prompt, want));
}

TEST(Failure, NumbersThatAreNotFiniteFailTheirOwnSequenceOnly) {
  const RealPair pair = pairs()[0];
  auto engine = load(pair);
  ASSERT_NE(engine, nullptr);
  TurnRunner& runner = *engine->internals().runner;
  const std::vector<Ids> texts = prompts(pair);
  std::vector<Ids> want;
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < 5; ++i) {
    want.push_back(plain_ids(runner, texts[i], 60));
    sequences.push_back(runner.start(true).value());
    ASSERT_TRUE(runner.prefill(sequences[i], texts[i], nullptr).ok());
  }
  std::memset(sequences[2].target.pages(0)[0], 0xff, runner.target().groups()[0].page_bytes);
  for (int turn = 0; turn < 10; ++turn) {
    std::vector<TurnJob> jobs;
    for (Sequence& sequence : sequences) jobs.push_back({.sequence = &sequence, .width = 6});
    ASSERT_TRUE(runner.take_turns(jobs, nullptr).ok());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(jobs[i].status.code(), i == 2 ? Code::corrupt : Code::ok) << i;
    }
  }
  EXPECT_EQ(sequences[2].ids.size(), texts[2].size() + 1);
  for (const std::size_t i : {0u, 1u, 3u, 4u}) {
    EXPECT_TRUE(follows(sequences[i], texts[i], want[i])) << i;
  }
}

// Sets a flag after some layers.
class InterruptingDevice final : public Device {
 public:
  explicit InterruptingDevice(Device& device) : device_(device) {}

  void interrupt_after(int layers) {
    layers_ = layers;
    flag = layers == 0;
  }
  std::atomic<bool> flag{false};

  void watch(const std::atomic<bool>* cancel) override { device_.watch(cancel); }
  bool given_up() const override { return device_.given_up(); }
  void embed(const StepTable& step, const PackedMatrix& table, float scale, float* out) override {
    device_.embed(step, table, scale, out);
  }
  void linear(std::span<const LinearSegment> segments, bool fp32, const float* x,
              std::size_t x_stride, std::uint32_t rows, float* out, std::size_t out_stride,
              bool accumulate) override {
    device_.linear(segments, fp32, x, x_stride, rows, out, out_stride, accumulate);
  }
  void rms_norm(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
                NormWeights norm, float* out, std::size_t out_stride) override {
    device_.rms_norm(in, in_stride, rows, width, norm, out, out_stride);
  }
  void gate_mul(const GateJob& job) override {
    device_.gate_mul(job);
    if (--layers_ == 0) flag = true;
  }
  void add(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
           float* out, std::size_t out_stride) override {
    device_.add(in, in_stride, rows, width, out, out_stride);
  }
  void scale(float* values, std::size_t count, float factor) override {
    device_.scale(values, count, factor);
  }
  void softcap(float* values, std::size_t count, float cap) override {
    device_.softcap(values, count, cap);
  }
  void route(const RouteJob& job) override { device_.route(job); }
  void experts(const ExpertsJob& job) override { device_.experts(job); }
  void rope_kv(const StepTable& step, const RopeKvJob& job) override { device_.rope_kv(step, job); }
  void attention(const StepTable& step, const AttentionJob& job) override {
    device_.attention(step, job);
  }
  void block_convolution(const StepTable& step, const BlockConvolutionJob& job) override {
    device_.block_convolution(step, job);
  }
  void convolution(const StepTable& step, const ConvolutionJob& job) override {
    device_.convolution(step, job);
  }
  void delta_rule(const StepTable& step, const DeltaRuleJob& job) override {
    device_.delta_rule(step, job);
    if (--layers_ == 0) flag = true;
  }
  void gated_rms_norm(const float* in, const float* gate, std::size_t gate_stride,
                      std::uint32_t rows, std::uint32_t heads, std::uint32_t width,
                      NormWeights norm, float* out) override {
    device_.gated_rms_norm(in, gate, gate_stride, rows, heads, width, norm, out);
  }
  void sigmoid_mul(const float* gate, std::size_t gate_stride, std::uint32_t rows,
                   std::uint32_t width, float* inout) override {
    device_.sigmoid_mul(gate, gate_stride, rows, width, inout);
  }
  void sigmoid_scale(const float* gate, std::uint32_t rows, std::uint32_t width,
                     float* inout) override {
    device_.sigmoid_scale(gate, rows, width, inout);
  }
  void multiply(const float* a, std::size_t a_stride, const float* b, std::size_t b_stride,
                std::uint32_t rows, std::uint32_t width, float* out,
                std::size_t out_stride) override {
    device_.multiply(a, a_stride, b, b_stride, rows, width, out, out_stride);
  }
  void capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                   std::uint32_t width, float* out, std::size_t out_stride) override {
    device_.capture_tap(stream, stream_stride, rows, width, out, out_stride);
  }
  void argmax(const float* logits, std::uint32_t rows, std::size_t stride, std::uint32_t count,
              std::uint32_t excluded, std::uint32_t* out) override {
    device_.argmax(logits, rows, stride, count, excluded, out);
  }
  void log_probabilities(const float* logits, std::uint32_t rows, std::size_t stride,
                         std::uint32_t count, const std::uint32_t* ids, double* logprob) override {
    device_.log_probabilities(logits, rows, stride, count, ids, logprob);
  }
  void group_maxima(const float* values, std::uint32_t count, float* maxima) override {
    device_.group_maxima(values, count, maxima);
  }
  void group_weights(const float* values, std::uint32_t count, float shift, float scale,
                     float* sums) override {
    device_.group_weights(values, count, shift, scale, sums);
  }
  void weights(const float* values, std::uint32_t count, float shift, float scale,
               float* out) override {
    device_.weights(values, count, shift, scale, out);
  }

 private:
  Device& device_;
  int layers_ = 0;
};

TEST(Cancel, ACancelledCallChangesNothingAndCanBeRepeated) {
  const RealPair pair = pairs()[0];
  auto engine = load(pair);
  ASSERT_NE(engine, nullptr);
  InterruptingDevice device(*engine->internals().device);
  Bounded bounded(engine->internals(), device);
  TurnRunner& runner = *bounded.runner;
  const std::vector<Ids> texts = prompts(pair);
  const auto layers = static_cast<std::uint32_t>(runner.target().config().layers);
  std::mt19937 random(3);
  std::size_t cancelled = 0;
  for (int round = 0; round < (full_run() ? 20 : 4); ++round) {
    std::vector<Sequence> sequences;
    std::vector<Ids> want;
    for (std::size_t i = 0; i < 6; ++i) {
      const Ids& prompt = texts[(i + static_cast<std::size_t>(round)) % texts.size()];
      want.push_back(plain_ids(runner, prompt, 50));
      Sequence& sequence = sequences.emplace_back(runner.start(i != 1).value());
      for (bool ended = false; !ended;) {
        const std::uint32_t length = sequence.target.length();
        device.interrupt_after(static_cast<int>(below(random, 2 * layers)));
        const Result<bool> chunk = runner.prefill_chunk(sequence, prompt, 20, &device.flag);
        ended = chunk.ok() && chunk.value();
        if (chunk.ok()) continue;
        ++cancelled;
        ASSERT_EQ(chunk.status().code(), Code::cancelled);
        ASSERT_EQ(sequence.target.length(), length);
      }
    }
    std::vector<Sequence*> order;
    for (Sequence& sequence : sequences) order.push_back(&sequence);
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<TurnJob> jobs;
      std::vector<Ids> before;
      for (Sequence* sequence : order) {
        jobs.push_back({.sequence = sequence, .width = 1 + below(random, 16)});
        before.push_back(sequence->ids);
      }
      for (;;) {
        device.interrupt_after(static_cast<int>(below(random, 3 * layers)));
        const Status status = runner.take_turns(jobs, &device.flag);
        if (status.ok()) break;
        ++cancelled;
        ASSERT_EQ(status.code(), Code::cancelled);
        for (std::size_t i = 0; i < jobs.size(); ++i) {
          const Sequence& sequence = *jobs[i].sequence;
          ASSERT_EQ(sequence.ids, before[i]);
          ASSERT_EQ(sequence.target.length() + 1, before[i].size());
          ASSERT_EQ(sequence.target.pending(), 0u);
        }
      }
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_TRUE(follows(sequences[i], texts[(i + static_cast<std::size_t>(round)) % texts.size()],
                          want[i]));
      expect_state_of_a_prompt(runner, sequences[i]);
    }
  }
  EXPECT_GT(cancelled, 50u);
}

}  // namespace
}  // namespace drafthouse
