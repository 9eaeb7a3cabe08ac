// The numbered statements of the reference's registry (tests/README.md says how each is read here).

#include "cache/cache_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cache/cache_test_pages.h"
#include "cache/prefix_flow.h"

namespace drafthouse {
namespace {

const CacheIdentity kA{.target = "a", .draft = "a-draft", .label = ""};
const CacheIdentity kB{.target = "b", .draft = "b-draft", .label = ""};

StateSpec spec_of(std::uint8_t weights, std::uint8_t window = 0) {
  StateSpec spec;
  spec.target.bytes[0] = weights;
  spec.draft.bytes[0] = weights;
  spec.draft.bytes[1] = window;
  spec.fields = {{"weights", std::to_string(weights)}, {"draft window", std::to_string(window)}};
  spec.layout = {{{.page_bytes = 256, .reach = 0, .draft = false},
                  {.page_bytes = 128, .reach = 0, .draft = true}}};
  return spec;
}

CacheConfig small_config() {
  CacheConfig config;
  config.ram_bytes = 1 << 20;
  return config;
}

// Stores a text, as a request would, and says how many of its tokens are found afterwards.
std::uint32_t publish(CacheManager& manager, std::uint32_t seed, std::size_t count) {
  const auto tokens = made_up_tokens(seed, count);
  return manager.publish("", tokens, made_up_pages(*manager.pages(), 9, tokens), true).value();
}

std::uint32_t hit_tokens(CacheManager& manager, std::uint32_t seed, std::size_t count) {
  return manager.lookup("", made_up_tokens(seed, count + 1), true).value().tokens;
}

TEST(CacheRegistry, Reg1_TwoIdentitiesHaveTwoManagersAndBothStayActive) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_NE(a.manager(), b.manager());
  EXPECT_TRUE(a.manager()->active());
  EXPECT_TRUE(b.manager()->active());
}

TEST(CacheRegistry, Reg2_TheSameIdentityAndConfigurationGiveTheSameObject) {
  CacheRegistry registry;
  const CacheLease first = registry.resolve(kA, small_config(), spec_of(1)).value();
  CacheConfig traced = small_config();
  traced.trace = true;
  const CacheLease second = registry.resolve(kA, traced, spec_of(1)).value();
  EXPECT_EQ(first.manager(), second.manager());
  EXPECT_TRUE(first.manager()->trace()) << "the caller's trace setting is applied";
}

TEST(CacheRegistry, Reg3_AChangedConfigurationReplacesAndShowsTheNewOne) {
  CacheRegistry registry;
  CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  const auto old = lease.manager();
  CacheConfig changed = small_config();
  changed.ram_bytes = 7 << 20;
  lease = registry.resolve(kA, changed, spec_of(1), &lease).value();
  EXPECT_NE(lease.manager(), old);
  EXPECT_FALSE(old->active());
  EXPECT_TRUE(lease.manager()->active());
  EXPECT_EQ(lease.manager()->config().ram_bytes, std::size_t{7} << 20);
  EXPECT_EQ(lease.manager()->stats().rebuilds, 1u);
}

TEST(CacheRegistry, Reg3_CountersOfAnIdentityOutliveItsManagers) {
  CacheRegistry registry;
  CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  publish(*lease.manager(), 1, 256);
  (void)lease.manager()->lookup("", made_up_tokens(1, 257), true);
  lease.release();
  ASSERT_TRUE(registry.shutdown(kA).ok());
  EXPECT_EQ(registry.find(kA), nullptr);
  EXPECT_EQ(registry.stats(kA).hits, 1u);
  EXPECT_EQ(registry.stats(kB).hits, 0u);
  CacheConfig off = small_config();
  off.enabled = false;
  lease = registry.resolve(kA, off, spec_of(1)).value();
  EXPECT_EQ(registry.stats(kA).hits, 1u);
  lease = registry.resolve(kA, small_config(), spec_of(1), &lease).value();
  (void)lease.manager()->lookup("", made_up_tokens(1, 257), true);
  const CacheStats stats = registry.stats(kA);
  EXPECT_EQ(stats.lookups, 2u);
  EXPECT_EQ(stats.hits, 1u) << "the entries went with the retirement";
  EXPECT_EQ(stats.rebuilds, 0u) << "nothing was replaced";
}

TEST(CacheRegistry, Reg4_AnotherDigestReplacesAndKeepsWhatIsStillValid) {
  CacheRegistry registry;
  CacheLease lease = registry.resolve(kA, small_config(), spec_of(1, 0)).value();
  publish(*lease.manager(), 1, 256);
  const auto old = lease.manager();
  lease = registry.resolve(kA, small_config(), spec_of(1, 1), &lease).value();
  EXPECT_FALSE(old->active());
  const CacheHit hit = lease.manager()->lookup("", made_up_tokens(1, 257), true).value();
  EXPECT_EQ(hit.tokens, 256u) << "the target's digest has not changed";
  EXPECT_EQ(hit.draft_begin, 256u) << "the draft's has";
  lease = registry.resolve(kA, small_config(), spec_of(3, 1), &lease).value();
  const CacheHit miss = lease.manager()->lookup("", made_up_tokens(1, 257), true).value();
  EXPECT_EQ(miss.tokens, 0u);
  EXPECT_EQ(miss.reason, "state digest changed: weights");
}

TEST(CacheRegistry, Reg5_CachingOffGivesNothingAndRetiresThatOneOnly) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  const auto old = a.manager();
  CacheConfig off = small_config();
  off.enabled = false;
  a = registry.resolve(kA, off, spec_of(1), &a).value();
  EXPECT_TRUE(a);
  EXPECT_EQ(a.manager(), nullptr);
  EXPECT_FALSE(old->active());
  EXPECT_TRUE(b.manager()->active());
}

TEST(CacheRegistry, Reg6_ReconfiguringOneLeavesTheOtherAsItWas) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  publish(*b.manager(), 5, 320);
  const auto before = b.manager().get();
  const CacheStats stats = b.manager()->stats();
  for (std::size_t i = 1; i < 20; ++i) {
    CacheConfig changed = small_config();
    changed.ram_bytes += i;
    a = registry.resolve(kA, changed, spec_of(1), &a).value();
  }
  EXPECT_EQ(registry.find(kB).get(), before);
  EXPECT_TRUE(before->active());
  EXPECT_EQ(b.manager()->stats().published_pages, stats.published_pages);
  EXPECT_EQ(hit_tokens(*b.manager(), 5, 320), 320u);
}

TEST(CacheRegistry, Reg7_WithoutAPairsStateNothingIsMade) {
  CacheRegistry registry;
  EXPECT_EQ(registry.resolve(kA, small_config(), StateSpec{}).status().code(),
            Code::invalid_argument);
  EXPECT_EQ(registry.find(kA), nullptr);
  EXPECT_TRUE(registry.entries().empty());
}

TEST(CacheRegistry, Reg8_WhichFieldsReplace) {
  struct Case {
    const char* field;
    void (*change)(CacheConfig&, StateSpec&);
    bool replaces;
  };
  const Case cases[] = {
      {"ram_bytes", [](CacheConfig& c, StateSpec&) { c.ram_bytes += 1; }, true},
      {"ram_floor_bytes", [](CacheConfig& c, StateSpec&) { c.ram_floor_bytes += 1; }, true},
      {"disk_bytes", [](CacheConfig& c, StateSpec&) { c.disk_bytes += 1; }, true},
      {"disk_free_bytes", [](CacheConfig& c, StateSpec&) { c.disk_free_bytes += 1; }, true},
      {"disk_queue_bytes", [](CacheConfig& c, StateSpec&) { c.disk_queue_bytes += 1; }, true},
      {"snapshot_tokens", [](CacheConfig& c, StateSpec&) { c.snapshot_tokens += 1; }, true},
      {"target digest", [](CacheConfig&, StateSpec& s) { s.target.bytes[31] ^= 1; }, true},
      {"draft digest", [](CacheConfig&, StateSpec& s) { s.draft.bytes[31] ^= 1; }, true},
      {"trace", [](CacheConfig& c, StateSpec&) { c.trace = !c.trace; }, false},
      {"names of digest fields", [](CacheConfig&, StateSpec& s) { s.fields.clear(); }, false},
      {"nothing", [](CacheConfig&, StateSpec&) {}, false},
  };
  for (const Case& each : cases) {
    CacheRegistry registry;
    CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
    const auto old = lease.manager();
    CacheConfig config = small_config();
    StateSpec spec = spec_of(1);
    each.change(config, spec);
    lease = registry.resolve(kA, config, spec, &lease).value();
    EXPECT_EQ(lease.manager() != old, each.replaces) << each.field;
    EXPECT_EQ(old->active(), !each.replaces) << each.field;
  }
}

TEST(CacheRegistry, Reg9_AnotherLabelIsAnotherSlot) {
  CacheRegistry registry;
  CacheIdentity labelled = kA;
  labelled.label = "second";
  const CacheLease one = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease two = registry.resolve(labelled, small_config(), spec_of(1)).value();
  EXPECT_NE(one.manager(), two.manager());
  ASSERT_TRUE(registry.shutdown(labelled).ok());
  EXPECT_TRUE(one.manager()->active());
  EXPECT_FALSE(two.manager()->active());
}

TEST(CacheRegistry, Reg10_AConflictNamesTheIdentityAndWhatDiffers) {
  CacheRegistry registry;
  const CacheLease first = registry.resolve(kA, small_config(), spec_of(1)).value();
  CacheConfig other = small_config();
  other.ram_bytes += 1;
  for (int i = 0; i < 100; ++i) {
    const auto refused = registry.resolve(kA, other, spec_of(1));
    ASSERT_EQ(refused.status().code(), Code::conflict);
    EXPECT_NE(refused.status().message().find("a + a-draft"), std::string::npos);
    EXPECT_NE(refused.status().message().find("ram_bytes"), std::string::npos);
    ASSERT_TRUE(registry.resolve(kA, small_config(), spec_of(1)).ok());
  }
  const auto digest = registry.resolve(kA, small_config(), spec_of(2));
  EXPECT_NE(digest.status().message().find("weights"), std::string::npos)
      << digest.status().message();
  EXPECT_EQ(first.manager()->stats().rebuilds, 0u);
  EXPECT_TRUE(first.manager()->active());
}

TEST(CacheRegistry, Reg11_SyncNeverCreatesAndRetiresWhatDoesNotMatch) {
  CacheRegistry registry;
  EXPECT_EQ(registry.sync(kA, small_config(), spec_of(1)), nullptr);
  const CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_EQ(registry.sync(kA, small_config(), spec_of(1)), lease.manager());
  EXPECT_EQ(registry.current(), lease.manager()) << "sync makes it current";
  CacheConfig other = small_config();
  other.ram_bytes += 1;
  EXPECT_EQ(registry.sync(kA, other, spec_of(1)), nullptr);
  EXPECT_FALSE(lease.manager()->active());
  EXPECT_EQ(registry.sync(kA, small_config(), spec_of(1)), nullptr);
  EXPECT_TRUE(b.manager()->active());
}

TEST(CacheRegistry, Reg12_CurrentIsTheLastResolvedOrNothing) {
  CacheRegistry registry;
  EXPECT_EQ(registry.current(), nullptr);
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_EQ(registry.current(), b.manager());
  ASSERT_TRUE(registry.shutdown(kB).ok());
  EXPECT_EQ(registry.current(), nullptr) << "even while A is active";
  EXPECT_TRUE(a.manager()->active());
}

TEST(CacheRegistry, Reg13_ShutdownOfOneAndOfAnUnknownOne) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_TRUE(registry.shutdown({.target = "nobody", .draft = "", .label = ""}).ok());
  EXPECT_TRUE(registry.shutdown(kA).ok());
  EXPECT_FALSE(a.manager()->active());
  EXPECT_EQ(registry.find(kA), nullptr);
  EXPECT_EQ(registry.find(kB), b.manager());
}

TEST(CacheRegistry, Reg14_ShutdownOfAll) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_TRUE(registry.shutdown().empty());
  EXPECT_FALSE(a.manager()->active());
  EXPECT_FALSE(b.manager()->active());
  EXPECT_EQ(registry.current(), nullptr);
}

TEST(CacheRegistry, Reg15_ALeaseOfAnotherIdentityGivesNoRightToReplace) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  CacheConfig other = small_config();
  other.ram_bytes += 1;
  EXPECT_EQ(registry.resolve(kA, other, spec_of(1), &b).status().code(), Code::conflict);
  EXPECT_TRUE(b) << "a refused call takes nothing";
}

TEST(CacheRegistry, Reg16_AlternatingRebuildsNothingAndBothHit) {
  CacheRegistry registry;
  for (int round = 0; round < 100; ++round) {
    for (const std::uint8_t which : {std::uint8_t{1}, std::uint8_t{2}}) {
      const CacheLease lease =
          registry.resolve(which == 1 ? kA : kB, small_config(), spec_of(which)).value();
      const std::uint32_t found = hit_tokens(*lease.manager(), which, 320);
      EXPECT_EQ(found, round == 0 ? 0u : 320u);
      publish(*lease.manager(), which, 320);
    }
  }
  for (const auto& entry : registry.entries()) EXPECT_EQ(entry.manager->stats().rebuilds, 0u);
}

TEST(CacheRegistry, Reg17_OneModelLooksUpPublishesAndHits) {
  CacheRegistry registry;
  const CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  EXPECT_EQ(hit_tokens(*lease.manager(), 1, 640), 0u);
  publish(*lease.manager(), 1, 640);
  EXPECT_EQ(hit_tokens(*lease.manager(), 1, 640), 640u);
  EXPECT_EQ(lease.manager()->stats().hits, 1u);
}

TEST(CacheRegistry, Life3_RetiringTwiceIsOnce) {
  CacheRegistry registry;
  const CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  EXPECT_TRUE(lease.manager()->retire().ok());
  EXPECT_TRUE(lease.manager()->retire().ok());
  EXPECT_TRUE(registry.shutdown(kA).ok());
  EXPECT_TRUE(registry.shutdown(kA).ok());
}

TEST(CacheRegistry, Life5_AFailedConstructionLeavesAnEmptySlot) {
  CacheRegistry registry;
  ASSERT_FALSE(registry.resolve(kA, small_config(), StateSpec{}).ok());
  EXPECT_TRUE(registry.resolve(kA, small_config(), spec_of(1)).ok());
}

TEST(CacheRegistry, Life8_ARetiredManagerAnswersClosed) {
  CacheRegistry registry;
  const CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  CacheManager& manager = *lease.manager();
  ASSERT_TRUE(registry.shutdown(kA).ok());
  const auto tokens = made_up_tokens(1, 128);
  EXPECT_EQ(manager.lookup("", tokens, true).status().code(), Code::closed);
  EXPECT_EQ(
      manager.publish("", tokens, made_up_pages(*manager.pages(), 9, tokens), true).status().code(),
      Code::closed);
  EXPECT_EQ(manager.clear_all().status().code(), Code::closed);
  EXPECT_EQ(manager.pin("", tokens, true).status().code(), Code::closed);
  manager.begin_request();
  manager.end_request();
  EXPECT_FALSE(manager.active());
}

TEST(CacheRegistry, Life9_PagesOfAnotherShapeAreRefused) {
  CacheRegistry registry;
  const CacheLease lease = registry.resolve(kA, small_config(), spec_of(1)).value();
  const auto tokens = made_up_tokens(1, 128);
  PrefixPages pages = made_up_pages(*lease.manager()->pages(), 9, tokens);
  pages.pop_back();
  EXPECT_EQ(lease.manager()->publish("", tokens, pages, true).status().code(),
            Code::invalid_argument);
  PrefixPages more = made_up_pages(*lease.manager()->pages(), 9, tokens);
  EXPECT_EQ(lease.manager()->publish("", std::span(tokens).first(64), more, true).status().code(),
            Code::invalid_argument);
}

TEST(PrefixFlow, Flow1_ARequestEndsOnTheManagerItBeganWith) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  PrefixFlow flow(a.manager(), "");
  flow.begin(made_up_tokens(1, 300), true);
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  EXPECT_EQ(a.manager()->active_requests(), 1u);
  EXPECT_EQ(b.manager()->active_requests(), 0u);
  const auto tokens = made_up_tokens(1, 300);
  EXPECT_TRUE(flow.publish(tokens, made_up_pages(*a.manager()->pages(), 9, tokens), true));
  flow.end();
  EXPECT_EQ(a.manager()->active_requests(), 0u);
  EXPECT_EQ(a.manager()->ram_pages(), 4u);
  EXPECT_EQ(b.manager()->ram_pages(), 0u);
}

TEST(PrefixFlow, Flow2_EndComesOnceOnEveryWayOut) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  {
    PrefixFlow flow(a.manager(), "");
    flow.begin(made_up_tokens(1, 300), true);
    PrefixFlow moved(std::move(flow));
    EXPECT_EQ(a.manager()->active_requests(), 1u);
    moved.end();
    moved.end();
    EXPECT_EQ(a.manager()->active_requests(), 0u);
  }
  EXPECT_EQ(a.manager()->active_requests(), 0u);
}

TEST(PrefixFlow, Flow3_RetiredBeforeTheLookupIsAMiss) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  publish(*a.manager(), 1, 300);
  PrefixFlow flow(a.manager(), "");
  ASSERT_TRUE(registry.shutdown(kA).ok());
  const CacheHit hit = flow.begin(made_up_tokens(1, 300), true);
  EXPECT_EQ(hit.tokens, 0u);
  EXPECT_EQ(hit.reason, "cache retired");
  EXPECT_FALSE(flow.caching());
}

TEST(PrefixFlow, Flow4And5_RetiredAfterTheLookupKeepsThePagesAndStoresNothing) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  publish(*a.manager(), 1, 256);
  PrefixFlow flow(a.manager(), "");
  const CacheHit hit = flow.begin(made_up_tokens(1, 300), true);
  ASSERT_EQ(hit.tokens, 256u);
  CacheConfig off = small_config();
  off.enabled = false;
  a = registry.resolve(kA, off, spec_of(1), &a).value();
  const auto tokens = made_up_tokens(1, 300);
  EXPECT_TRUE(page_is(hit.pages[0][3], 9, 0, std::span(tokens).first(256)));
  PageStore own(spec_of(1).layout, nullptr);
  EXPECT_FALSE(flow.publish(tokens, made_up_pages(own, 9, tokens), true));
}

TEST(PrefixFlow, Flow7_BeginAndEndAroundRetirementBalance) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const auto old = a.manager();
  PrefixFlow before(old, "");
  before.begin(made_up_tokens(1, 300), true);
  CacheConfig other = small_config();
  other.ram_bytes += 1;
  a = registry.resolve(kA, other, spec_of(1), &a).value();
  PrefixFlow after(old, "");
  after.begin(made_up_tokens(1, 300), true);
  before.end();
  after.end();
  EXPECT_EQ(old->active_requests(), 0u);
  EXPECT_EQ(a.manager()->active_requests(), 0u);
}

TEST(PrefixFlow, Flow8_WhatHappensToOneLeavesTheOthersRequestAlone) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  const CacheLease b = registry.resolve(kB, small_config(), spec_of(2)).value();
  publish(*b.manager(), 7, 256);
  PrefixFlow flow(b.manager(), "");
  const CacheHit hit = flow.begin(made_up_tokens(7, 300), true);
  CacheConfig other = small_config();
  other.ram_bytes += 1;
  a = registry.resolve(kA, other, spec_of(1), &a).value();
  other.enabled = false;
  a = registry.resolve(kA, other, spec_of(1), &a).value();
  a.release();
  ASSERT_TRUE(registry.shutdown(kA).ok());
  EXPECT_EQ(hit.tokens, 256u);
  const auto tokens = made_up_tokens(7, 320);
  EXPECT_TRUE(flow.publish(tokens, made_up_pages(*b.manager()->pages(), 9, tokens), true));
  EXPECT_EQ(b.manager()->stats().hits, 1u);
}

TEST(CacheRegistry, Gap6_ASmallerLimitKeepsTheMostValuableEntries) {
  CacheRegistry registry;
  CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  publish(*a.manager(), 1, 640);
  publish(*a.manager(), 2, 640);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(hit_tokens(*a.manager(), 2, 640), 640u);
  CacheConfig small = small_config();
  small.ram_bytes = 10 * (256 + 128);
  a = registry.resolve(kA, small, spec_of(1), &a).value();
  EXPECT_LE(a.manager()->ram_bytes(), small.ram_bytes);
  EXPECT_EQ(hit_tokens(*a.manager(), 2, 640), 640u);
  EXPECT_EQ(a.manager()->stats().rebuilds, 1u);
  EXPECT_GE(a.manager()->stats().hits, 3u) << "counters continue";
}

TEST(CacheManager, TheRamLimitHoldsBeforeEveryPage) {
  CacheRegistry registry;
  CacheConfig config = small_config();
  config.ram_bytes = 5 * (256 + 128);
  const CacheLease a = registry.resolve(kA, config, spec_of(1)).value();
  for (std::uint32_t i = 0; i < 50; ++i) {
    publish(*a.manager(), i, 64 * (1 + i % 9));
    EXPECT_LE(a.manager()->ram_bytes(), config.ram_bytes);
  }
  EXPECT_EQ(publish(*a.manager(), 99, 640), 5u) << "as much as fits, from the beginning";
  EXPECT_GT(a.manager()->stats().evicted_own, 0u);
  EXPECT_GT(a.manager()->stats().refused_full, 0u);
}

TEST(CacheManager, PressureStopsAtTheFloor) {
  CacheRegistry registry;
  CacheConfig config = small_config();
  config.ram_floor_bytes = 3 * (256 + 128);
  const CacheLease a = registry.resolve(kA, config, spec_of(1)).value();
  publish(*a.manager(), 1, 640);
  while (a.manager()->evict(true) > 0) {
  }
  EXPECT_EQ(a.manager()->ram_pages(), 3u);
  while (a.manager()->evict(false) > 0) {
  }
  EXPECT_EQ(a.manager()->ram_pages(), 0u);
}

TEST(CacheManager, ShortPromptsSaySo) {
  CacheRegistry registry;
  const CacheLease a = registry.resolve(kA, small_config(), spec_of(1)).value();
  EXPECT_EQ(a.manager()->lookup("", made_up_tokens(1, 64), true).value().reason, "too short");
  EXPECT_EQ(a.manager()->lookup("", {}, true).value().reason, "too short");
  publish(*a.manager(), 1, 64);
  EXPECT_EQ(a.manager()->lookup("", made_up_tokens(1, 64), true).value().tokens, 0u)
      << "one token is always computed";
  EXPECT_EQ(a.manager()->lookup("", made_up_tokens(1, 65), true).value().tokens, 64u);
}

TEST(CacheRegistry, ManyThreadsResolveReconfigureAndShutDown) {
  CacheRegistry registry;
  std::atomic<int> conflicts{0};
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&registry, &conflicts, t] {
      for (std::uint32_t i = 0; i < 200; ++i) {
        const bool first = (i + t) % 2 == 0;
        CacheConfig config = small_config();
        if (i % 7 == 0) config.ram_bytes += t;
        auto lease = registry.resolve(first ? kA : kB, config, spec_of(first ? 1 : 2));
        if (!lease.ok()) {
          EXPECT_EQ(lease.status().code(), Code::conflict);
          ++conflicts;
          continue;
        }
        const auto manager = lease.value().manager();
        const auto tokens = made_up_tokens(i % 5, 200);
        (void)manager->lookup("", tokens, true);
        (void)manager->publish("", tokens, made_up_pages(*manager->pages(), 9, tokens), true);
        (void)registry.current();
        if (i % 31 == 0) (void)registry.shutdown(first ? kA : kB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(registry.shutdown().empty());
  EXPECT_TRUE(registry.entries().empty());
}

}  // namespace
}  // namespace drafthouse
