// Sequences that share passes or prefixes: none of it may show in the ids, the bytes of the state
// or the acceptance of any of them.

#include "tests/exactness/shared_passes.h"

namespace drafthouse {
namespace {

using test::below;
using test::expect_state_of_a_prompt;
using test::follows;
using test::full_run;
using test::Ids;
using test::kSequences;
using test::load;
using test::long_prompt;
using test::pairs;
using test::plain_ids;
using test::prompts;
using test::RealPair;
using test::small;
using test::State;
using test::state_of;

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

}  // namespace
}  // namespace drafthouse
