// Sequences that share passes, prefixes or a cancelled call: none of it may show in the ids, the
// bytes of the state or the acceptance of any of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>

#include "tests/exactness/real_pairs.h"

namespace drafthouse {
namespace {

using test::full_run;
using test::must;
using test::RealPair;
using test::State;
using test::state_of;
using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t kSequences = 16;

std::uint32_t below(std::mt19937& random, std::uint32_t n) {
  return static_cast<std::uint32_t>(random() % n);
}

// The bf16 pair, an integer one, the one with windows and the default pair; in full runs all.
std::vector<RealPair> pairs() {
  std::vector<RealPair> all = test::real_pairs();
  if (full_run()) return all;
  std::vector<RealPair> some = {all[0], all[1]};
  some.insert(some.end(), all.begin() + 4, all.end());
  return some;
}

std::unique_ptr<Engine> load(const RealPair& pair, unsigned threads = 2) {
  return must(Engine::load(
      {.target = pair.target, .draft = pair.draft, .threads = threads, .sequences = kSequences}));
}

bool small(const RealPair& pair) { return pair.draft != test::kDefaultDraft; }

// The prompts of a pair that are quick to run.
std::vector<Ids> prompts(const RealPair& pair) {
  std::vector<Ids> list;
  for (const nlohmann::json& one : pair.cases) {
    Ids ids = one["prompt_ids"].get<Ids>();
    if (ids.size() < 200) list.push_back(std::move(ids));
  }
  return list;
}

// A prompt of several pages.
Ids long_prompt(const RealPair& pair) {
  Ids ids;
  for (std::size_t i = pair.cases.size(); ids.size() < 300; --i) {
    const Ids more = pair.cases[i - 1]["prompt_ids"].get<Ids>();
    ids.insert(ids.end(), more.begin(), more.end());
  }
  ids.resize(300);
  return ids;
}

// What plain decoding writes after a prompt.
Ids plain_ids(TurnRunner& runner, const Ids& prompt, std::size_t count) {
  Sequence sequence = runner.start(false).value();
  EXPECT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
  while (sequence.ids.size() < prompt.size() + count) {
    EXPECT_TRUE(runner.take_turn(sequence, 1, nullptr).ok());
  }
  return Ids(sequence.ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()), sequence.ids.end());
}

// Whether the ids after the prompt begin like `want`, as far as both go.
bool follows(const Sequence& sequence, const Ids& prompt, const Ids& want) {
  const std::size_t count = std::min(want.size(), sequence.ids.size() - prompt.size());
  return std::equal(prompt.begin(), prompt.end(), sequence.ids.begin()) &&
         std::equal(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(count),
                    sequence.ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
}

// The state of a sequence, all taps projected, equals that of a prompt of its ids.
void expect_state_of_a_prompt(TurnRunner& runner, Sequence& sequence) {
  ASSERT_TRUE(runner.settle(sequence).ok());
  ASSERT_EQ(sequence.target.length() + 1, sequence.ids.size());
  Sequence fed = runner.start(sequence.drafts()).value();
  const std::span<const std::uint32_t> ids(sequence.ids);
  ASSERT_TRUE(runner.prefill(fed, ids.first(ids.size() - 1), nullptr).ok());
  const State want = state_of(runner, fed);
  const State got = state_of(runner, sequence);
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_TRUE(got.target == want.target) << "target pages";
  EXPECT_TRUE(got.draft == want.draft) << "draft pages";
}

struct Stream {
  const Ids* prompt;
  const Ids* want;
  std::size_t count = 0;  // ids to generate at least
  std::unique_ptr<Sequence> sequence = {};
  bool decoding = false;

  bool finished() const { return decoding && sequence->ids.size() >= prompt->size() + count; }
};

// Random arrivals, prefill chunks in between, turns of random subsets in random widths.
void run_streams(TurnRunner& runner, std::vector<Stream> waiting, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Stream> active;
  while (!waiting.empty() || !active.empty()) {
    if (!waiting.empty() && active.size() < kSequences && below(random, 2) == 0) {
      active.push_back(std::move(waiting.back()));
      waiting.pop_back();
      active.back().sequence =
          std::make_unique<Sequence>(runner.start(below(random, 4) != 0).value());
    }
    for (Stream& stream : active) {
      if (stream.decoding || below(random, 3) != 0) continue;
      const Result<bool> ended =
          runner.prefill_chunk(*stream.sequence, *stream.prompt, 1 + below(random, 90), nullptr);
      ASSERT_TRUE(ended.ok());
      stream.decoding = ended.value();
      break;
    }
    std::vector<TurnJob> jobs;
    for (Stream& stream : active) {
      if (!stream.decoding || below(random, 8) == 0) continue;
      jobs.push_back(
          {.sequence = stream.sequence.get(), .width = 1 + below(random, runner.block_size())});
    }
    if (jobs.empty()) continue;
    std::shuffle(jobs.begin(), jobs.end(), random);
    ASSERT_TRUE(runner.take_turns(jobs, nullptr).ok());
    for (const TurnJob& job : jobs) {
      ASSERT_TRUE(job.status.ok()) << job.status.message();
      EXPECT_GE(job.outcome.gained, 1u);
      EXPECT_LE(job.outcome.gained, job.outcome.width);
    }
    for (std::size_t i = 0; i < active.size();) {
      if (!active[i].finished()) {
        ++i;
        continue;
      }
      EXPECT_TRUE(follows(*active[i].sequence, *active[i].prompt, *active[i].want))
          << "seed " << seed << ", prompt of " << active[i].prompt->size();
      expect_state_of_a_prompt(runner, *active[i].sequence);
      active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

TEST(Batch, EverySequenceHasTheIdsAndTheStateThatItHasAlone) {
  for (const RealPair& pair : pairs()) {
    SCOPED_TRACE(pair.target);
    const std::vector<Ids> texts = prompts(pair);
    std::vector<Ids> want;
    for (const unsigned threads : {1u, 2u}) {
      auto engine = load(pair, threads);
      ASSERT_NE(engine, nullptr);
      TurnRunner& runner = *engine->internals().runner;
      for (std::size_t i = want.size(); i < texts.size(); ++i) {
        want.push_back(plain_ids(runner, texts[i], 70));
      }
      const unsigned seeds = full_run() ? 10 : small(pair) ? 2 : 1;
      for (unsigned seed = 0; seed < seeds; ++seed) {
        std::vector<Stream> streams;
        for (std::size_t i = 0; i < (small(pair) || full_run() ? 20u : 6u); ++i) {
          const std::size_t at = (i + seed) % texts.size();
          streams.push_back({.prompt = &texts[at], .want = &want[at], .count = 20 + (i * 37) % 50});
        }
        run_streams(runner, std::move(streams), seed + 100 * threads);
      }
    }
  }
}

struct Turns {
  std::vector<std::uint32_t> gained;
  Ids ids;
  State state;
};

Turns run_turns(TurnRunner& runner, Sequence& sequence, std::uint32_t width, int turns) {
  Turns run;
  for (int turn = 0; turn < turns; ++turn) {
    const Result<TurnOutcome> outcome = runner.take_turn(sequence, width, nullptr);
    EXPECT_TRUE(outcome.ok());
    if (outcome.ok()) run.gained.push_back(outcome.value().gained);
  }
  EXPECT_TRUE(runner.settle(sequence).ok());
  run.ids = sequence.ids;
  run.state = state_of(runner, sequence);
  return run;
}

PrefixPages shared_pages(const Sequence& sequence, std::uint32_t pages) {
  PrefixPages shared;
  for (const SequenceCache* cache : {&sequence.target, &*sequence.draft}) {
    for (std::uint32_t g = 0; g < cache->groups(); ++g) {
      shared.emplace_back();
      for (std::uint32_t page = 0; page < pages; ++page) {
        shared.back().push_back(cache->share(g, page));
      }
    }
  }
  return shared;
}

TEST(Prefix, AnAdoptedStateIsTheOneThatWouldBeComputed) {
  for (const RealPair& pair : pairs()) {
    SCOPED_TRACE(pair.target);
    auto engine = load(pair);
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    const Ids prompt = long_prompt(pair);
    Sequence cold = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(cold, prompt, nullptr).ok());
    const PrefixPages shared = shared_pages(cold, 4);
    const Turns want = run_turns(runner, cold, 8, 25);
    for (const std::uint32_t pages : {1u, 4u}) {
      PrefixPages prefix = shared;
      for (std::vector<PageRef>& group : prefix) group.resize(pages);
      Sequence hit = runner.start(true).value();
      runner.adopt(hit, pages * kPageTokens, prefix);
      ASSERT_TRUE(runner.prefill(hit, prompt, nullptr).ok());
      const Turns got = run_turns(runner, hit, 8, 25);
      EXPECT_EQ(got.gained, want.gained) << pages;
      EXPECT_EQ(got.ids, want.ids) << pages;
      EXPECT_TRUE(got.state.target == want.state.target) << pages;
      EXPECT_TRUE(got.state.draft == want.state.draft) << pages;

      Sequence plain = runner.start(false).value();
      runner.adopt(plain, pages * kPageTokens, prefix);
      ASSERT_TRUE(runner.prefill(plain, prompt, nullptr).ok());
      ASSERT_TRUE(runner.take_turn(plain, 1, nullptr).ok());
      EXPECT_TRUE(std::equal(plain.ids.begin(), plain.ids.end(), want.ids.begin()));
    }
  }
}

TEST(Prefix, ADraftContextMayLackItsBeginningOrAHole) {
  for (const RealPair& pair : pairs()) {
    SCOPED_TRACE(pair.target);
    auto engine = load(pair);
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    const Ids prompt = long_prompt(pair);
    Sequence cold = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(cold, prompt, nullptr).ok());
    const PrefixPages shared = shared_pages(cold, 4);
    const Turns want = run_turns(runner, cold, 8, 30);
    const std::uint32_t targets = cold.target.groups();
    for (const unsigned missing : {0b1111u, 0b0111u, 0b0110u}) {
      SCOPED_TRACE(missing);
      PrefixPages prefix = shared;
      for (std::size_t g = targets; g < prefix.size(); ++g) {
        for (unsigned page = 0; page < 4; ++page) {
          if ((missing >> page & 1u) != 0) prefix[g][page] = PageRef();
        }
      }
      if (missing == 0b1111u) prefix.resize(targets);
      Sequence hit = runner.start(true).value();
      runner.adopt(hit, 4 * kPageTokens, prefix);
      ASSERT_TRUE(runner.prefill(hit, prompt, nullptr).ok());
      const Turns got = run_turns(runner, hit, 8, 12);
      ASSERT_LT(got.ids.size(), want.ids.size());
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), want.ids.begin()));
      // What the draft learnt after the hit is what it always learns there.
      const SequenceCache& draft = *hit.draft;
      for (std::uint32_t g = 0; g < draft.groups(); ++g) {
        for (std::uint32_t page = 0; page < draft.length() / kPageTokens; ++page) {
          const bool lost = page < 4 && (missing >> page & 1u) != 0;
          if (lost) {
            EXPECT_FALSE(draft.share(g, page));
          }
          if (lost || draft.pages(g)[page] == nullptr) continue;
          EXPECT_EQ(std::memcmp(draft.pages(g)[page], cold.draft->pages(g)[page],
                                runner.draft()->groups()[g].page_bytes),
                    0)
              << "page " << page;
        }
      }
    }
  }
}

// A text may end inside a block, right after a page of it has been published.
TEST(Truncate, LeavesTheStateThatPlainDecodingLeaves) {
  for (const RealPair& pair : pairs()) {
    SCOPED_TRACE(pair.target);
    auto engine = load(pair);
    ASSERT_NE(engine, nullptr);
    TurnRunner& runner = *engine->internals().runner;
    const Ids prompt = prompts(pair)[1];
    const std::size_t most = small(pair) || full_run() ? 140 : 60;
    const Ids want = plain_ids(runner, prompt, most + 10);
    std::mt19937 random(5);
    Sequence sequence = runner.start(true).value();
    ASSERT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
    std::size_t cuts = 0;
    std::size_t page_cuts = 0;
    for (int turn = 0; sequence.ids.size() < prompt.size() + most; ++turn) {
      const std::size_t before = sequence.ids.size();
      const Result<TurnOutcome> outcome =
          runner.take_turn(sequence, 2 + below(random, 15), nullptr);
      ASSERT_TRUE(outcome.ok());
      const std::uint32_t gained = outcome.value().gained;
      if (gained == 1) continue;
      ++cuts;
      if (below(random, 2) == 0) {
        ASSERT_TRUE(runner.settle(sequence).ok());
      }
      const std::uint32_t pages = sequence.target.length() / kPageTokens;
      const PageRef published = pages > 0 ? sequence.target.share(0, pages - 1) : PageRef();
      const std::vector<std::byte> bytes(published.data(), published.data() + published.bytes());
      const auto count = static_cast<std::uint32_t>(before) + 1 + below(random, gained - 1);
      runner.truncate(sequence, count);
      ASSERT_EQ(sequence.ids.size(), count);
      ASSERT_EQ(sequence.target.length(), count - 1);
      ASSERT_EQ(sequence.draft->length() + sequence.taps_waiting, count - 1);
      if (sequence.target.length() / kPageTokens < pages) ++page_cuts;
      ASSERT_TRUE(runner.take_turn(sequence, 1 + below(random, 16), nullptr).ok());
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), published.data()));
    }
    EXPECT_TRUE(follows(sequence, prompt, want));
    EXPECT_GT(cuts, 5u);
    expect_state_of_a_prompt(runner, sequence);
    RecordProperty("page_cuts", static_cast<int>(page_cuts));
  }
}

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
