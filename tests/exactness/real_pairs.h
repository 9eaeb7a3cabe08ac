#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drafthouse/engine.h"
#include "engine/internals.h"
#include "tests/f16_q4_1.h"
#include "tests/test_data.h"

// The pairs whose weights are here, and the state of their sequences as bytes.

namespace drafthouse::test {

inline std::unique_ptr<Engine> must(Result<std::unique_ptr<Engine>> engine) {
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.status().message());
  return engine.ok() ? std::move(engine).value() : nullptr;
}

// Ids without a pattern; the same ones every time.
inline std::vector<std::uint32_t> some_ids(std::size_t count, std::uint32_t vocabulary) {
  std::vector<std::uint32_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::uint32_t>((i * 2654435761u >> 7) % vocabulary));
  }
  return ids;
}

struct RealPair {
  std::string target;
  std::string draft;
  nlohmann::json cases;
};

inline std::vector<RealPair> real_pairs() {
  std::vector<RealPair> pairs;
  const std::string nano = data_path("models/nano-qwen3");
  const nlohmann::json cases = read_json(nano + "/golden.json")["cases"];
  pairs.push_back({nano + "/target", nano + "/draft", cases});
  for (const char* file : {"Q8_0", "Q4_0", "F16-Q4_1"}) {
    pairs.push_back({nano_gguf(file), nano + "/draft", cases});
  }
  const PairPaths gemma = pair_paths("nano-gemma4");
  pairs.push_back({gemma.target, gemma.draft, read_json(gemma.golden)["cases"]});
  if (!default_model().empty()) {
    pairs.push_back({default_model(), kDefaultDraft,
                     read_json(data_path("models/smollm2-135m/golden.json"))["cases"]});
  }
  return pairs;
}

// Of the pair's cases; the first one among equals.
inline std::vector<std::uint32_t> longest_prompt(const RealPair& pair) {
  std::vector<std::uint32_t> longest;
  for (const nlohmann::json& one : pair.cases) {
    auto ids = one["prompt_ids"].get<std::vector<std::uint32_t>>();
    if (ids.size() > longest.size()) longest = std::move(ids);
  }
  return longest;
}

// All bytes of the pages that hold positions 0 … length−1 whole and that the next row sees.
inline std::vector<std::byte> full_pages(const SequenceCache& cache, std::uint32_t group,
                                         std::size_t page_bytes, std::uint32_t reach) {
  std::vector<std::byte> bytes;
  for (std::uint32_t page = first_page_seen(cache.length(), reach);
       page < cache.length() / kPageTokens; ++page) {
    const std::byte* data = cache.pages(group)[page];
    if (data != nullptr) bytes.insert(bytes.end(), data, data + page_bytes);
  }
  return bytes;
}

struct State {
  std::vector<std::byte> target;
  std::vector<std::byte> draft;
  std::vector<std::uint32_t> ids;
};

inline State state_of(TurnRunner& runner, const Sequence& sequence) {
  State state;
  for (std::uint32_t g = 0; g < sequence.target.groups(); ++g) {
    const KvGroup& group = runner.target().groups()[g];
    const auto bytes = full_pages(sequence.target, g, group.page_bytes, group.reach);
    state.target.insert(state.target.end(), bytes.begin(), bytes.end());
  }
  for (std::uint32_t g = 0; sequence.drafts() && g < sequence.draft->groups(); ++g) {
    const DFlashDraft::Group& group = runner.draft()->groups()[g];
    const auto bytes = full_pages(*sequence.draft, g, group.page_bytes,
                                  runner.limits().draft_context.reach(group.window));
    state.draft.insert(state.draft.end(), bytes.begin(), bytes.end());
  }
  state.ids = sequence.ids;
  return state;
}

}  // namespace drafthouse::test
