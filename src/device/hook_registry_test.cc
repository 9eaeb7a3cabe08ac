// Who owns a slot: the numbered statements HOOK-1 … 7 and GAP-1 … 3 of the reference's behaviour,
// in their meaning here. tests/hooks has the same with plugins and engines.

#include "device/hook_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "device/hooked_kernels.h"

namespace drafthouse {
namespace {

void rope_as_it_is(const void* job) {
  const auto& j = *static_cast<const dh_hook_rope_job*>(job);
  kernels_for(Isa::generic).rope(j.head, j.cos, j.sin, j.half);
}
void rope_of_another(const void* job) { rope_as_it_is(job); }
void argmax_as_it_is(const void* job) {
  const auto& j = *static_cast<const dh_hook_argmax_job*>(job);
  *j.index = kernels_for(Isa::generic).argmax(j.values, j.count);
}
void argmax_is_three(const void* job) { *static_cast<const dh_hook_argmax_job*>(job)->index = 3; }
std::atomic<int> crude_calls{0};
void norm_crudely(const void* job) {
  ++crude_calls;
  const auto& j = *static_cast<const dh_hook_rms_norm_job*>(job);
  reference_kernels().rms_norm(j.out, j.in, j.gain, j.width, j.eps);
}

Hook rope(std::string name = "one", dh_hook_function function = rope_as_it_is) {
  return {.slot = HookSlot::rope(), .name = std::move(name), .version = "1", .function = function};
}
Hook argmax(std::string name = "one", dh_hook_function function = argmax_as_it_is) {
  return {
      .slot = HookSlot::argmax(), .name = std::move(name), .version = "1", .function = function};
}
Hook crude_norm(std::string version = "1") {
  return {.slot = HookSlot::rms_norm(),
          .name = "crude",
          .version = std::move(version),
          .function = norm_crudely,
          .exact = false,
          .error_bound = 0x1p-10};
}

HookClaim claim(HookRegistry& registry, std::vector<Hook> hooks) {
  Result<HookClaim> claimed = registry.claim(std::move(hooks));
  EXPECT_TRUE(claimed.ok()) << (claimed.ok() ? "" : claimed.status().message());
  return claimed.ok() ? std::move(claimed).value() : HookClaim();
}

std::string owners(const HookRegistry& registry) {
  std::string text;
  for (const InstalledHook& slot : registry.installed()) {
    text += slot.hook.slot.name() + "=" + slot.hook.owner() + " ";
  }
  return text;
}

bool mentions(const Status& status, std::string_view word) {
  return status.message().find(word) != std::string::npos;
}

TEST(HookRegistry, Hook1_ClaimingAFreeSlotInstallsAndNamesTheOwner) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope()});
  EXPECT_EQ(first.installed(), 1u);
  EXPECT_EQ(first.repeated(), 0u);
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  EXPECT_EQ(registry.bind().table()[HookSlot::rope().index()].function, rope_as_it_is);
}

TEST(HookRegistry, Hook2_TheSameOwnerAgainChangesNothingAndIsCounted) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope()});
  const HookClaim second = claim(registry, {rope()});
  EXPECT_EQ(second.installed(), 0u);
  EXPECT_EQ(second.repeated(), 1u);
  ASSERT_EQ(registry.installed().size(), 1u);
  EXPECT_EQ(registry.installed()[0].claims, 2u);
}

TEST(HookRegistry, Hook3_AnotherOwnerIsAConflictThatNamesBothAndChangesNothing) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope()});
  const Status refused = registry.claim({rope("other", rope_of_another)}).status();
  EXPECT_EQ(refused.code(), Code::conflict);
  for (const char* word : {"HookConflict", "rope", "one@1", "other@1"}) {
    EXPECT_TRUE(mentions(refused, word)) << word << ": " << refused.message();
  }
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  EXPECT_EQ(registry.installed()[0].claims, 1u);
  EXPECT_EQ(registry.bind().table()[HookSlot::rope().index()].function, rope_as_it_is);
}

TEST(HookRegistry, Hook3_TheSameNameWithAnotherFunctionVersionOrPromiseIsAnotherOwner) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope(), crude_norm()});
  EXPECT_EQ(registry.claim({rope("one", rope_of_another)}).status().code(), Code::conflict);
  Hook newer = rope();
  newer.version = "2";
  const Status refused = registry.claim({newer}).status();
  EXPECT_EQ(refused.code(), Code::conflict);
  EXPECT_TRUE(mentions(refused, "one@1") && mentions(refused, "one@2")) << refused.message();
  Hook looser = crude_norm();
  looser.error_bound = 0x1p-9;
  EXPECT_EQ(registry.claim({looser}).status().code(), Code::conflict);
}

TEST(HookRegistry, Hook4_TwoLoadsOfOneOwnerShareTheHook) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope(), argmax()});
  const HookBinding one = registry.bind();
  const HookClaim second = claim(registry, {rope(), argmax()});
  const HookBinding two = registry.bind();
  EXPECT_EQ(owners(registry), "rope=one@1 argmax=one@1 ");
  for (const InstalledHook& slot : registry.installed()) {
    EXPECT_EQ(slot.claims, 2u);
    EXPECT_EQ(slot.bindings, 2u);
  }
  EXPECT_EQ(one.table()[HookSlot::rope().index()].function,
            two.table()[HookSlot::rope().index()].function);
}

TEST(HookRegistry, Hook5_AConflictIsFoundBeforeTheGateComputesAnything) {
  HookRegistry registry;
  Hook other = crude_norm();
  const HookClaim first = claim(registry, {crude_norm(), rope()});
  const int calls = crude_calls;
  other.name = "other";
  EXPECT_EQ(registry.claim({other}).status().code(), Code::conflict);
  // Also when the conflict is on another slot than the one that would have to be tested.
  HookRegistry fresh;
  const HookClaim held = claim(fresh, {rope()});
  EXPECT_EQ(fresh.claim({crude_norm(), rope("other", rope_of_another)}).status().code(),
            Code::conflict);
  EXPECT_EQ(crude_calls, calls);
}

// Hooks get a job and nothing else; two engines at once use one with data of their own.
TEST(HookRegistry, Hook6_AHookServesSeveralEnginesAtOnce) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {crude_norm()});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int engine = 1; engine <= 4; ++engine) {
    threads.emplace_back([&registry, &wrong, engine] {
      const HookBinding binding = registry.bind();
      const HookedKernels kernels(kernels_for(Isa::generic), binding.table());
      const std::vector<float> in(64, static_cast<float>(engine));
      const std::vector<float> gain(64, static_cast<float>(engine));
      std::vector<float> out(64);
      for (int round = 0; round < 100; ++round) {
        kernels.rms_norm(out.data(), in.data(), gain.data(), 64, 0.0f);
        if (out[7] != static_cast<float>(engine)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(HookRegistry, Hook7_ASlotIsOneOperationAndSaysNothingAboutOthers) {
  HookRegistry registry;
  const HookClaim first = claim(registry, {rope()});
  const HookClaim other = claim(registry, {argmax("other")});
  EXPECT_EQ(owners(registry), "rope=one@1 argmax=other@1 ");
  // Of matmul and of pages each format is a slot.
  EXPECT_NE(HookSlot::matmul(Dtype::q4_1, ActKind::int8),
            HookSlot::matmul(Dtype::q4_1, ActKind::f32));
  EXPECT_NE(HookSlot::attend_page(KvKind::bf16), HookSlot::attend_page(KvKind::f32));
}

TEST(HookRegistry, Gap1_TheLastReleaseRestoresTheOriginal) {
  HookRegistry registry;
  HookClaim first = claim(registry, {rope()});
  HookClaim second = claim(registry, {rope()});
  EXPECT_TRUE(first.release().ok());
  EXPECT_EQ(registry.bind().hooks().size(), 1u);
  EXPECT_TRUE(second.release().ok());
  EXPECT_TRUE(registry.bind().hooks().empty());
  EXPECT_TRUE(registry.installed().empty());
  EXPECT_TRUE(second.release().ok()) << "a claim that is given back twice";
  // And the slot is free for another.
  EXPECT_EQ(claim(registry, {rope("other", rope_of_another)}).installed(), 1u);
}

TEST(HookRegistry, Gap1_ReleasingAHookInUseIsBusy) {
  HookRegistry registry;
  HookClaim held = claim(registry, {rope(), argmax()});
  {
    const HookBinding engine = registry.bind();
    const Status busy = held.release();
    EXPECT_EQ(busy.code(), Code::busy);
    EXPECT_TRUE(mentions(busy, "one@1")) << busy.message();
    EXPECT_EQ(owners(registry), "rope=one@1 argmax=one@1 ");
    // One of two claims may go.
    HookClaim again = claim(registry, {rope(), argmax()});
    EXPECT_TRUE(again.release().ok());
  }
  EXPECT_TRUE(held.release().ok());
  EXPECT_TRUE(registry.installed().empty());
}

// An engine that brought a hook may go before another that uses it.
TEST(HookRegistry, Gap1_ADroppedClaimEndsWithTheLastEngineThatUsesTheHook) {
  HookRegistry registry;
  auto held = std::make_unique<HookClaim>(claim(registry, {rope()}));
  auto engine = std::make_unique<HookBinding>(registry.bind());
  held.reset();
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  EXPECT_TRUE(registry.bind().hooks().empty()) << "later loads get the original";
  EXPECT_EQ(registry.claim({rope("other", rope_of_another)}).status().code(), Code::conflict);
  EXPECT_EQ(claim(registry, {rope()}).repeated(), 1u) << "its owner may claim it again";
  engine.reset();
  EXPECT_TRUE(registry.installed().empty());
}

TEST(HookRegistry, Gap1_AClaimAffectsLaterLoadsOnly) {
  HookRegistry registry;
  const HookBinding before = registry.bind();
  const HookClaim held = claim(registry, {rope()});
  const HookBinding after = registry.bind();
  EXPECT_TRUE(before.hooks().empty());
  EXPECT_EQ(after.hooks().size(), 1u);
}

// Claim and installation are one step on the exact slot: of many claimers one wins, and everybody
// sees whole hooks or none.
TEST(HookRegistry, Gap2_AClaimIsOneStep) {
  HookRegistry registry;
  constexpr int kThreads = 4;
  constexpr int kRounds = 60;
  std::atomic<int> torn{0};
  std::atomic<int> unexpected{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const bool even = t % 2 == 0;
      const std::vector<Hook> mine = {
          rope(even ? "even" : "odd", even ? rope_as_it_is : rope_of_another),
          argmax(even ? "even" : "odd")};
      for (int round = 0; round < kRounds; ++round) {
        Result<HookClaim> claimed = registry.claim(mine);
        if (!claimed.ok() && claimed.status().code() != Code::conflict) ++unexpected;
        const HookBinding bound = registry.bind();
        if (bound.hooks().size() == 1) ++torn;
        if (bound.hooks().size() == 2 && bound.hooks()[0].name != bound.hooks()[1].name) ++torn;
        if (claimed.ok() && round % 3 == 0) {
          const Status released = claimed.value().release();
          if (!released.ok() && released.code() != Code::busy) ++unexpected;
        }
        for (const InstalledHook& slot : registry.installed()) {
          if (slot.claims == 0 && slot.bindings == 0) ++torn;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(unexpected, 0);
  EXPECT_TRUE(registry.installed().empty());
}

TEST(HookRegistry, Gap3_ARefusedLoadLeavesNothing) {
  HookRegistry registry;
  const HookClaim held = claim(registry, {rope()});
  // The first slots are free, the last belongs to somebody.
  EXPECT_EQ(
      registry.claim({crude_norm(), argmax(), rope("other", rope_of_another)}).status().code(),
      Code::conflict);
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  // The gate refuses the last.
  EXPECT_EQ(registry.claim({crude_norm(), argmax("one", argmax_is_three)}).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  EXPECT_EQ(registry.claim({argmax(), argmax("other")}).status().code(), Code::conflict);
  EXPECT_EQ(owners(registry), "rope=one@1 ");
  EXPECT_EQ(registry.installed()[0].claims, 1u);
}

TEST(HookRegistry, TheDigestKnowsApproximateHooksOnly) {
  HookRegistry registry;
  const HookClaim exact = claim(registry, {rope(), argmax()});
  EXPECT_EQ(registry.bind().digest_text(), "");
  const HookClaim crude = claim(registry, {crude_norm("2.1")});
  EXPECT_EQ(registry.bind().digest_text(), "rms_norm=crude@2.1");
  EXPECT_EQ(HookBinding().digest_text(), "");
}

TEST(HookPlugin, IsNamedByAnAbsolutePath) {
  HookRegistry registry;
  EXPECT_EQ(registry.load_plugin("plugin.so").status().code(), Code::invalid_argument);
  EXPECT_EQ(registry.load_plugin("").status().code(), Code::invalid_argument);
  EXPECT_EQ(registry.load_plugin("/no/such/plugin.so").status().code(), Code::not_found);
}

}  // namespace
}  // namespace drafthouse
