// The host as its embedders see it: several real pairs in one process.

#include "drafthouse/host.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "base/memory.h"
#include "host/pair_engine.h"
#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

TEST(Host, SeveralPairsAnswerAtOnceAsEachDoesAlone) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  ASSERT_TRUE(host->load(gguf_spec("b")).ok());
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<SubmitRequest> wanted;
  for (std::uint32_t i = 0; i < 16; ++i) {
    wanted.push_back(request(i % 2 == 0 ? "a" : "b", long_prompt(i, 40 + 37 * i), 24,
                             i % 3 == 0 ? 0 : (i % 3 == 1 ? 1 : 8)));
    streams.push_back(host->submit(wanted.back()).value());
  }
  for (std::uint32_t i = 0; i < 16; ++i) {
    const Event end = finish(*streams[i]);
    ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
    EXPECT_EQ(end.result.ids,
              alone(i % 2 == 0 ? nano_spec("") : gguf_spec(""), wanted[i].prompt_ids, 24))
        << "request " << i;
  }
  const HostStats stats = host->stats();
  ASSERT_EQ(stats.models.size(), 2u);
  EXPECT_EQ(stats.models[0].finished, 8u);
  EXPECT_EQ(stats.models[1].finished, 8u);
  EXPECT_EQ(stats.models[0].manager_rebuilds + stats.models[1].manager_rebuilds, 0u);
}

TEST(Host, TheNextTurnComputesOnlyWhatIsNew) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  std::vector<std::uint32_t> text = long_prompt(3, 150);
  for (int turn = 0; turn < 5; ++turn) {
    const Event end = run(*host, request("a", text, 40, 8));
    ASSERT_EQ(end.kind, Event::Kind::finished);
    EXPECT_EQ(end.result.ids, alone(nano_spec(""), text, 40));
    if (turn > 0) {
      EXPECT_EQ(end.result.cache.tier, "ram");
      // Everything but the new message and a page.
      EXPECT_GE(end.result.cache.matched_tokens + 64 + 20, text.size());
    }
    text.insert(text.end(), end.result.ids.begin(), end.result.ids.end());
    const auto more = long_prompt(static_cast<std::uint32_t>(turn) + 50, 20);
    text.insert(text.end(), more.begin(), more.end());
  }
}

TEST(Host, AcceptanceAfterAFullHitIsThatOfAColdRun) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  for (const std::uint32_t width : {4u, 16u}) {
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      SubmitRequest wanted = request("a", long_prompt(seed * 9 + width, 300), 60, width);
      const Event cold = run(*host, wanted);
      const Event hit = run(*host, wanted);
      EXPECT_EQ(hit.result.cache.matched_tokens, 256u);
      EXPECT_EQ(hit.result.ids, cold.result.ids);
      EXPECT_EQ(hit.result.accepted_per_turn, cold.result.accepted_per_turn);
      wanted.salt = "another tenant " + std::to_string(seed * 100 + width);
      EXPECT_EQ(run(*host, wanted).result.cache.matched_tokens, 0u);
    }
  }
}

TEST(Host, AHitWithoutADraftsContextGivesTheSameIds) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  const auto prompt = long_prompt(5, 330);
  const Event plain = run(*host, request("a", prompt, 50, 1));
  const Event drafted = run(*host, request("a", prompt, 50, 8));
  EXPECT_EQ(drafted.result.cache.matched_tokens, 320u);
  EXPECT_EQ(drafted.result.cache.reason, "draft context not stored");
  EXPECT_EQ(drafted.result.ids, plain.result.ids);
}

TEST(Host, ReconfiguringAndUnloadingOneLeavesTheOtherAlone) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  ASSERT_TRUE(host->load(gguf_spec("b")).ok());
  const auto prompt = long_prompt(1, 400);
  (void)run(*host, request("b", prompt, 4));
  auto running = host->submit(request("b", prompt, 200)).value();
  auto other = host->submit(request("a", prompt, 100)).value();
  CacheConfig changed;
  changed.ram_bytes = std::size_t{32} << 20;
  ASSERT_TRUE(host->reconfigure("a", changed).ok());
  const Event reconfigured = finish(*other);
  EXPECT_EQ(reconfigured.kind, Event::Kind::finished);
  EXPECT_EQ(reconfigured.result.ids, alone(nano_spec(""), prompt, 100));
  changed.enabled = false;
  ASSERT_TRUE(host->reconfigure("a", changed).ok());
  EXPECT_EQ(run(*host, request("a", prompt, 4)).result.cache.reason, "disabled");
  ASSERT_TRUE(host->unload("a").ok());
  const Event end = finish(*running);
  ASSERT_EQ(end.kind, Event::Kind::finished);
  EXPECT_EQ(end.result.ids, alone(gguf_spec(""), prompt, 200));
  EXPECT_EQ(end.result.cache.matched_tokens, 384u);
  const HostStats stats = host->stats();
  EXPECT_EQ(stats.models[1].manager_rebuilds, 0u);
  EXPECT_EQ(stats.models[0].state, ModelState::registered);
  // A request loads it again.
  EXPECT_EQ(run(*host, request("a", prompt, 4)).kind, Event::Kind::finished);
}

TEST(Host, SettingsThatCannotServeAreRefusedLoadedOrNot) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("loaded")).ok());
  ASSERT_TRUE(host->add(gguf_spec("known")).ok());
  CacheConfig no_folder;
  no_folder.disk_directory = "/dev/null";
  CacheConfig no_pages;
  no_pages.snapshot_tokens = 0;
  for (const char* name : {"loaded", "known"}) {
    EXPECT_EQ(host->reconfigure(name, no_folder).code(), Code::invalid_argument) << name;
    EXPECT_EQ(host->reconfigure(name, no_pages).code(), Code::invalid_argument) << name;
    EXPECT_EQ(run(*host, request(name, long_prompt(1, 100), 4)).kind, Event::Kind::finished);
  }
  ModelSpec spec = nano_spec("third");
  spec.cache.snapshot_tokens = 63;
  const Status refused = host->add(spec);
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_NE(refused.message().find("\"third\": snapshot_tokens is 63"), std::string::npos);
}

TEST(Host, ClearingWhatIsNotKnownIsNoSuccess) {
  const ScratchFolder folder("host_clear");
  auto host = make_host();
  ModelSpec spec = nano_spec("a");
  spec.cache.disk_directory = folder.path();
  ASSERT_TRUE(host->add(gguf_spec("without a folder")).ok());
  EXPECT_EQ(host->clear_cache("without a folder", std::nullopt).value(), 0u);
  ASSERT_TRUE(host->load(spec).ok());
  (void)run(*host, request("a", long_prompt(1, 300), 4));
  ASSERT_TRUE(host->unload("a").ok());
  EXPECT_EQ(host->clear_cache("a", std::nullopt).status().code(), Code::unsupported);
  ASSERT_TRUE(host->load("a").ok());
  EXPECT_TRUE(host->clear_cache("a", std::nullopt).ok());
  EXPECT_EQ(run(*host, request("a", long_prompt(1, 300), 4)).result.cache.matched_tokens, 0u);
}

TEST(Host, UnloadKeepsTheCacheWhenItIsAskedTo) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  const auto prompt = long_prompt(1, 400);
  const Event cold = run(*host, request("a", prompt, 10));
  ASSERT_TRUE(host->unload("a", {.deadline_s = 5, .keep_cache = true}).ok());
  const Event kept = run(*host, request("a", prompt, 10));
  EXPECT_EQ(kept.result.cache.matched_tokens, 384u);
  EXPECT_EQ(kept.result.ids, cold.result.ids);
  ASSERT_TRUE(host->unload("a").ok());
  EXPECT_EQ(run(*host, request("a", prompt, 10)).result.cache.matched_tokens, 0u);
}

TEST(Host, TwoNamesOfOnePairShareWeightsAndCacheOrConflictByName) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  ASSERT_TRUE(host->load(nano_spec("alias")).ok());
  const auto prompt = long_prompt(1, 300);
  (void)run(*host, request("a", prompt, 4));
  for (int i = 0; i < 100; ++i) {
    const Event end = run(*host, request(i % 2 == 0 ? "alias" : "a", prompt, 2));
    ASSERT_EQ(end.result.cache.matched_tokens, 256u);
  }
  ModelSpec other = nano_spec("other");
  other.cache.ram_bytes = std::size_t{8} << 20;
  const Status refused = host->load(other);
  EXPECT_EQ(refused.code(), Code::conflict);
  EXPECT_NE(refused.message().find("ram_bytes"), std::string::npos) << refused.message();
  other.label = "second";
  ASSERT_TRUE(host->load(other).ok());
  for (int i = 0; i < 100; ++i) {
    const Event end = run(*host, request(i % 2 == 0 ? "other" : "a", prompt, 2));
    ASSERT_EQ(end.result.cache.matched_tokens, i == 0 ? 0u : 256u);
  }
  for (const ModelStats& model : host->stats().models) {
    EXPECT_EQ(model.manager_rebuilds, 0u) << model.name;
    EXPECT_GT(model.shared_weight_bytes, 0u) << model.name;
  }
}

TEST(Host, DiskHitsAfterARestartAndAfterEvictionGiveTheSameIds) {
  const ScratchFolder folder("dh_host");
  ModelSpec a = nano_spec("a");
  ModelSpec b = gguf_spec("b");
  for (ModelSpec* spec : {&a, &b}) {
    spec->cache.disk_directory = folder.path();
    spec->cache.disk_free_bytes = 0;
  }
  std::map<std::string, std::vector<Event>> cold;
  const auto wanted = [](const std::string& model, std::uint32_t i) {
    return request(model, long_prompt(i * 3, 200 + 70 * i), 40, i % 2 == 0 ? 8 : 1);
  };
  {
    auto host = make_host();
    ASSERT_TRUE(host->load(a).ok());
    ASSERT_TRUE(host->load(b).ok());
    for (const std::string model : {"a", "b"}) {
      for (std::uint32_t i = 0; i < 6; ++i) {
        cold[model].push_back(run(*host, wanted(model, i)));
        EXPECT_GT(cold[model].back().result.cache.stored_pages, 0u);
      }
    }
    ASSERT_TRUE(host->flush_cache(60).ok());
  }
  for (int restart = 0; restart < 2; ++restart) {
    auto host = make_host();
    ASSERT_TRUE(host->load(a).ok());
    ASSERT_TRUE(host->load(b).ok());
    for (const std::string model : {"b", "a"}) {
      for (std::uint32_t i = 0; i < 6; ++i) {
        const Event hit = run(*host, wanted(model, i));
        const std::size_t prompt = 200 + 70 * i;
        EXPECT_EQ(hit.result.cache.matched_tokens, (prompt - 1) / 64 * 64);
        EXPECT_EQ(hit.result.cache.tier, "disk") << hit.result.cache.reason;
        EXPECT_EQ(hit.result.ids, cold[model][i].result.ids);
        EXPECT_EQ(hit.result.accepted_per_turn, cold[model][i].result.accepted_per_turn);
        EXPECT_EQ(run(*host, wanted(model, i)).result.cache.tier, "ram")
            << "and once more from RAM";
      }
    }
    ASSERT_TRUE(host->clear_cache("b", "").ok() || restart == 1);
    EXPECT_EQ(host->stats().models[0].manager_rebuilds, 0u);
    if (restart == 0) {
      // What b has lost, a has not.
      EXPECT_EQ(run(*host, wanted("b", 0)).result.cache.matched_tokens, 0u);
      EXPECT_GT(run(*host, wanted("a", 0)).result.cache.matched_tokens, 0u);
      for (std::uint32_t i = 0; i < 6; ++i) (void)run(*host, wanted("b", i));
      ASSERT_TRUE(host->flush_cache(60).ok());
    }
  }
}

TEST(Host, BadRequestsAndModelsAreNamed) {
  auto host = make_host();
  EXPECT_EQ(host->submit(request("nobody", {1}, 1)).status().code(), Code::not_found);
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  EXPECT_EQ(host->submit(request("a", {}, 1)).status().code(), Code::invalid_argument);
  EXPECT_EQ(host->submit(request("a", {1, 999999}, 1)).status().code(), Code::invalid_argument);
  EXPECT_EQ(host->submit(request("a", long_prompt(1, 100000), 1)).status().code(),
            Code::context_overflow);
  EXPECT_EQ(host->submit(request("a", {1}, 1, 17)).status().code(), Code::invalid_argument);
  ModelSpec broken = nano_spec("broken");
  broken.draft = nano("target");
  const std::size_t before = host->stats().memory_used;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(host->load(broken).ok());
  EXPECT_EQ(host->stats().memory_used, before);
  EXPECT_EQ(host->stats().models.size(), 1u) << "a failed load leaves no trace";
  ModelSpec taken = gguf_spec("a");
  EXPECT_EQ(host->load(taken).code(), Code::conflict);
  EXPECT_EQ(run(*host, request("a", golden_prompt(0), 8)).kind, Event::Kind::finished);
}

TEST(Host, CancellationsOfAllPhasesEndAtOnceAndHoldNothing) {
  auto host = make_host();
  ASSERT_TRUE(host->load(nano_spec("a")).ok());
  ASSERT_TRUE(host->load(gguf_spec("b")).ok());
  std::mt19937 random(11);
  const int rounds = test::full_run() ? 250 : 30;
  const auto neighbour = long_prompt(77, 200);
  const auto expected = alone(nano_spec(""), neighbour, 60);
  for (int round = 0; round < rounds; ++round) {
    auto steady = host->submit(request("a", neighbour, 60)).value();
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 4; ++i) {
      SubmitRequest wanted =
          request(random() % 2 == 0 ? "a" : "b",
                  long_prompt(static_cast<std::uint32_t>(random() % 40), 20 + random() % 600), 100);
      streams.push_back(host->submit(wanted).value());
    }
    for (auto& stream : streams) {
      for (std::size_t i = random() % 6; i > 0; --i) (void)stream->next(0.002);
      if (random() % 2 == 0) {
        stream->cancel();
        stream->cancel();
        const Event end = finish(*stream);
        EXPECT_TRUE(end.kind == Event::Kind::cancelled || end.kind == Event::Kind::finished);
        EXPECT_FALSE(stream->next(0).has_value()) << "one end only";
      }
      stream.reset();
    }
    const Event end = finish(*steady);
    ASSERT_EQ(end.kind, Event::Kind::finished);
    ASSERT_EQ(end.result.ids, expected);
  }
  EXPECT_TRUE(host->drain(30).ok());
  for (const ModelStats& model : host->stats().models) {
    EXPECT_EQ(model.running + model.queued, 0u);
    EXPECT_EQ(model.finished + model.cancelled + model.failed, model.requests);
  }
}

TEST(Host, ASmallBudgetEvictsCachedStateAndKeepsIdsRight) {
  std::size_t loaded = 0;
  {
    auto host = make_host();
    ASSERT_TRUE(host->load(nano_spec("a")).ok());
    loaded = host->stats().memory_used;
  }
  auto host = make_host(loaded + (std::size_t{24} << 20));
  ModelSpec spec = nano_spec("a");
  spec.cache.ram_floor_bytes = 0;
  const Status status = host->load(spec);
  ASSERT_TRUE(status.ok()) << status.message();
  for (std::uint32_t round = 0; round < 6; ++round) {
    std::vector<std::unique_ptr<Stream>> streams;
    for (std::uint32_t i = 0; i < 6; ++i) {
      streams.push_back(host->submit(request("a", long_prompt(round * 6 + i, 400), 12)).value());
    }
    for (std::uint32_t i = 0; i < 6; ++i) {
      const Event end = finish(*streams[i]);
      ASSERT_EQ(end.kind, Event::Kind::finished) << end.status.message();
      EXPECT_EQ(end.result.ids, alone(nano_spec(""), long_prompt(round * 6 + i, 400), 12));
    }
    EXPECT_LE(host->stats().memory_peak, host->stats().memory_limit);
  }
}

// Room is made for the estimate: less than a load takes, and others would be unloaded in vain.
TEST(Host, TheEstimateOfALoadCoversIt) {
  for (const ModelSpec& spec : {nano_spec("a"), gguf_spec("b")}) {
    for (const std::uint32_t sequences : {1u, 16u}) {
      ModelSpec one = spec;
      one.sequences = sequences;
      const MemoryNeed need = estimate_pair(one, WeightStore()).value();
      auto host = make_host();
      ASSERT_TRUE(host->load(one).ok());
      const std::size_t loaded = host->stats().memory_used;
      EXPECT_GE(need.total(), loaded) << spec.target << ", " << sequences << " sequences";
      EXPECT_LE(need.total(), loaded + loaded / 2)
          << spec.target << ", " << sequences << " sequences";
    }
  }
}

TEST(Host, LoadingAndUnloadingDoesNotGrow) {
  auto host = make_host();
  const int rounds = test::full_run() ? 300 : 12;
  // The C library gives new threads heaps of their own, up to eight for each core, and keeps them.
  const int warm_up = test::full_run() ? 100 : 1;
  const std::size_t fresh = host->stats().memory_used;
  std::size_t first = 0;
  for (int round = 0; round < rounds; ++round) {
    ASSERT_TRUE(host->load(nano_spec("a")).ok());
    ASSERT_TRUE(host->load(gguf_spec("b")).ok());
    CacheConfig changed;
    changed.ram_bytes = std::size_t{16} << 20;
    ASSERT_TRUE(host->reconfigure("a", changed).ok());
    EXPECT_EQ(run(*host, request("a", long_prompt(1, 300), 4)).kind, Event::Kind::finished);
    ASSERT_TRUE(host->remove("a").ok());
    ASSERT_TRUE(host->remove("b").ok());
    EXPECT_EQ(host->stats().memory_used, fresh);
    if (round == warm_up) first = resident_bytes();
  }
  EXPECT_LE(resident_bytes(), first + first / 50 + (std::size_t{4} << 20));
}

TEST(Host, MayEndWithRequestsUnderWay) {
  std::unique_ptr<Stream> left;
  {
    auto host = make_host();
    ASSERT_TRUE(host->load(nano_spec("a")).ok());
    left = host->submit(request("a", long_prompt(1, 500), 0)).value();
    (void)left->next(0.01);
  }
  const Event end = finish(*left);
  EXPECT_EQ(end.kind, Event::Kind::failed);
  EXPECT_EQ(end.status.code(), Code::closed);
  left->cancel();
}

}  // namespace
}  // namespace drafthouse
