#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_store.h"
#include "tests/sim/fake_clock.h"
#include "turn/sequence_runner.h"

namespace drafthouse {

// A made-up model. The state after a position is a hash of all ids up to it, kept in the pages and
// read back from them, so a page of another text changes every id that follows; pages that were
// adopted are compared besides, and a wrong one aborts the process.
struct FakeModel {
  std::uint64_t seed = 1;
  std::uint32_t vocab = 1000;
  std::uint32_t eos = 0xffffffff;    // an id that ends an answer; of the vocabulary or none
  std::uint32_t block = 1;           // 1: no draft
  std::uint32_t right_percent = 70;  // of proposals
  std::uint32_t layers = 4;
  double pass_s = 0.01;
  double row_s = 0.001;

  std::uint64_t first_state() const { return seed * 0x9e3779b97f4a7c15u; }
  std::uint64_t next_state(std::uint64_t state, std::uint32_t id) const;
  std::uint32_t choice(std::uint64_t state) const;
  // What it answers, however it is run.
  std::vector<std::uint32_t> answer(std::span<const std::uint32_t> prompt, std::size_t ids) const;
};

// Runs a FakeModel as a SequenceRunner: batches, drafts that are right now and then, waiting taps,
// pages from a real store, time on a FakeClock. Confined to one thread.
class FakeRunner final : public SequenceRunner {
 public:
  FakeRunner(const FakeModel& model, const TurnLimits& limits, std::shared_ptr<PageStore> pages,
             FakeClock& clock);

  // Called in every layer of a pass, before the flag is looked at. May set it.
  std::function<void()> on_layer = {};
  std::uint64_t passes = 0;
  std::uint64_t cancelled_passes = 0;
  std::uint64_t rows = 0;
  std::uint64_t adopted_pages = 0;
  std::uint64_t forks = 0;
  std::uint32_t largest_batch = 0;

  const FakeModel& model() const { return model_; }

  const TurnLimits& limits() const override { return limits_; }
  std::uint32_t block_size() const override { return model_.block; }
  Result<Sequence> start(bool drafts) override;
  void adopt(Sequence& sequence, std::uint32_t length, const PrefixPages& pages) override;
  Result<Sequence> fork(const Sequence& sequence, std::uint32_t count) override;
  Result<bool> prefill_chunk(Sequence& sequence, std::span<const std::uint32_t> prompt,
                             std::uint32_t rows_max, const std::atomic<bool>* cancel) override;
  Status take_turns(std::span<TurnJob> jobs, const std::atomic<bool>* cancel) override;
  Status settle(Sequence& sequence) override;
  void truncate(Sequence& sequence, std::uint32_t count) override;

 private:
  // One pass: time passes layer by layer. False: cancelled.
  bool pass(std::uint32_t rows, const std::atomic<bool>* cancel);
  std::uint64_t state_at(const Sequence& sequence, std::uint32_t position) const;
  void write(SequenceCache& cache, std::uint32_t position, std::uint64_t state, bool draft);
  void check(const Sequence& sequence, std::span<const std::uint32_t> ids) const;
  void write_drafted(Sequence& sequence, std::uint32_t first, std::uint32_t count);

  FakeModel model_;
  TurnLimits limits_;
  std::shared_ptr<PageStore> pages_;
  FakeClock& clock_;
};

// A layout for it: full attention, a window of 128 positions, and, with a draft, the draft's
// context.
StateLayout fake_layout(std::size_t page_bytes, bool draft);

}  // namespace drafthouse
