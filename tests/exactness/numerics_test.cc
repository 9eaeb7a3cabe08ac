// Stored state is valid as long as its bytes are what this build would compute. kNumericsVersion
// says so in every digest; here the bytes of nano pairs are pinned for each class of kernels, so
// that bits cannot change without a new version.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "cache/state_digest.h"
#include "engine/state_spec.h"
#include "tests/exactness/real_pairs.h"

namespace drafthouse {
namespace {

std::string sum_of(const test::State& state) {
  Sha256 sum;
  sum.add(state.target);
  sum.add(state.draft);
  return StateDigest{sum.finish()}.hex().substr(0, 32);
}

TEST(Numerics, StateBytesAreThoseOfThisVersion) {
  const nlohmann::json pinned = test::read_json(test::data_path("numerics.json"));
  ASSERT_EQ(pinned["version"], kNumericsVersion)
      << "a new version needs new sums in tests/data/numerics.json: those printed below";
  std::size_t compared = 0;
  for (const test::RealPair& pair : test::real_pairs()) {
    // The folder of a pair and what its target is called there.
    const std::string file =
        pair.target.substr(pair.target.rfind('/', pair.target.rfind('/') - 1) + 1);
    const auto prompt = test::longest_prompt(pair);
    if (!pinned["sums"].contains(file)) continue;
    for (const Isa isa : built_isas()) {
      if (!cpu_has(isa)) continue;
      for (const bool fp32 : {false, true}) {
        const std::string key = fmt::format("{}{}", name_of(isa), fp32 ? " fp32" : "");
        auto engine = test::must(Engine::load({.target = pair.target,
                                               .draft = pair.draft,
                                               .compute_fp32 = fp32,
                                               .isa = std::string(name_of(isa))}));
        ASSERT_NE(engine, nullptr);
        TurnRunner& runner = *engine->internals().runner;
        Sequence sequence = runner.start(true).value();
        ASSERT_TRUE(runner.prefill(sequence, prompt, nullptr).ok());
        const test::State state = test::state_of(runner, sequence);
        ASSERT_FALSE(state.target.empty());
        ASSERT_FALSE(state.draft.empty());
        const nlohmann::json& sums = pinned["sums"][file];
        EXPECT_EQ(sums.contains(key) ? sums[key] : nlohmann::json("none"), sum_of(state))
            << file << ", \"" << key << "\": state has other bytes than version "
            << kNumericsVersion
            << " had. Unless that is a mistake, raise kNumericsVersion in engine/state_spec.h and "
               "pin "
               "the new sums";
        ++compared;
      }
    }
  }
  // nano-qwen3, its three GGUF files and nano-gemma4, each with the generic kernels at least.
  EXPECT_GE(compared, 10u);
}

}  // namespace
}  // namespace drafthouse
