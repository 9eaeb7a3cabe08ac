// What the host costs and what its prefix cache saves, on the default pair: ratios of one run.
//
//   host_bench TARGET [DRAFT]

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "cache/cache_registry.h"
#include "drafthouse/host.h"

namespace drafthouse {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

std::vector<std::uint32_t> made_up(std::uint32_t seed, std::size_t count) {
  std::vector<std::uint32_t> ids(count);
  std::uint64_t state = seed * 2654435761u + 1;
  for (std::uint32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<std::uint32_t>(state >> 33) % 40000;
  }
  return ids;
}

struct Sample {
  double first_s = 0;  // until the first id
  std::string tier;
  std::vector<double> gaps_s = {};
};

Sample ask(Host& host, const std::vector<std::uint32_t>& prompt, std::uint32_t max_tokens,
           const std::string& salt, bool use_cache, std::uint32_t width) {
  SubmitRequest wanted;
  wanted.model = "pair";
  wanted.prompt_ids = prompt;
  wanted.max_tokens = max_tokens;
  wanted.ignore_eos = true;
  wanted.salt = salt;
  wanted.use_cache = use_cache;
  wanted.width = width;
  Sample sample;
  const double start = now_s();
  double last = start;
  auto stream = host.submit(wanted);
  if (!stream.ok()) {
    fmt::print(stderr, "{}\n", stream.status().message());
    std::exit(1);
  }
  while (auto event = stream.value()->next(600)) {
    const double now = now_s();
    if (event->kind == Event::Kind::tokens) {
      if (sample.first_s == 0) {
        sample.first_s = now - start;
      } else {
        sample.gaps_s.push_back(now - last);
      }
      last = now;
    }
    if (event->terminal()) sample.tier = event->cache.tier;
  }
  return sample;
}

void first_token(const ModelSpec& spec, const std::string& folder) {
  std::vector<double> cold;
  std::vector<double> ram;
  std::vector<double> disk;
  const auto prefix = made_up(1, 1200);
  for (int round = 0; round < 7; ++round) {
    const std::string salt = std::to_string(round);
    std::vector<std::uint32_t> prompt = prefix;
    auto host = Host::create({}).value();
    (void)host->load(spec);
    const Sample first = ask(*host, prompt, 4, salt, true, 0);
    const auto more = made_up(100 + static_cast<std::uint32_t>(round), 24);
    prompt.insert(prompt.end(), more.begin(), more.end());
    const Sample second = ask(*host, prompt, 4, salt, true, 0);
    (void)host->flush_cache(60);
    host.reset();
    host = Host::create({}).value();
    (void)host->load(spec);
    const Sample third = ask(*host, prompt, 4, salt, true, 0);
    if (first.tier != "none" || second.tier != "ram" || third.tier != "disk") {
      fmt::print("  round {} left out: tiers {}, {}, {}\n", round, first.tier, second.tier,
                 third.tier);
      continue;
    }
    cold.push_back(first.first_s);
    ram.push_back(second.first_s);
    disk.push_back(third.first_s);
  }
  if (cold.empty()) return;
  const double whole = quantile(cold, 0.5);
  fmt::print(
      "first id of a 1,200-token prefix and 24 new tokens (medians of {} interleaved runs):\n",
      cold.size());
  fmt::print("  cold {:.1f} ms, RAM {:.1f} ms = {:.3f} of cold, disk {:.1f} ms = {:.3f} of cold\n",
             1e3 * whole, 1e3 * quantile(ram, 0.5), quantile(ram, 0.5) / whole,
             1e3 * quantile(disk, 0.5), quantile(disk, 0.5) / whole);
  std::filesystem::remove_all(folder);
}

// Registry and index alone: small pages stand in for real ones.
void lookup() {
  CacheRegistry registry;
  StateSpec spec;
  spec.layout = {{{.page_bytes = 4096, .reach = 0, .draft = false}}};
  CacheConfig config;
  const CacheIdentity identity{.target = "t", .draft = "d", .label = ""};
  const CacheLease lease = registry.resolve(identity, config, spec).value();
  CacheManager& manager = *lease.manager();
  const auto publish = [&manager](const std::vector<std::uint32_t>& ids) {
    PrefixPages pages(1);
    for (std::size_t i = 0; i < ids.size() / kPageTokens; ++i) {
      pages[0].push_back(manager.pages()->pool(0)->take().value());
    }
    (void)manager.publish("", ids, pages, false);
  };
  for (std::uint32_t i = 0; i < 200; ++i) publish(made_up(1000 + i, 50 * kPageTokens));
  const auto prompt = made_up(7, 4000);
  publish(prompt);
  std::vector<double> times;
  for (int round = 0; round < 200; ++round) {
    const double start = now_s();
    const CacheLease again = registry.resolve(identity, config, spec).value();
    const CacheHit hit = again.manager()->lookup("", prompt, true).value();
    times.push_back(now_s() - start);
    if (hit.tokens != 3968) fmt::print("  a lookup found {} tokens\n", hit.tokens);
  }
  fmt::print(
      "resolve and look up 4,000 tokens beside {} other pages: median {:.0f} µs, p99 {:.0f} µs\n",
      manager.ram_pages(), 1e6 * quantile(times, 0.5), 1e6 * quantile(times, 0.99));
}

void publication(const ModelSpec& spec, const std::string& folder) {
  auto host = Host::create({}).value();
  (void)host->load(spec);
  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> p50;
  std::vector<double> p99;
  for (std::uint32_t round = 0; round < 10; ++round) {
    std::vector<double> on;
    std::vector<double> off;
    for (int side = 0; side < 2; ++side) {
      const bool publish = (side == 0) == (round % 2 == 0);
      const Sample sample = ask(*host, made_up(round, 100), 400, std::to_string(round), publish, 1);
      (publish ? on : off) = sample.gaps_s;
    }
    with.insert(with.end(), on.begin(), on.end());
    without.insert(without.end(), off.begin(), off.end());
    p50.push_back(quantile(on, 0.5) / quantile(off, 0.5));
    p99.push_back(quantile(on, 0.99) / quantile(off, 0.99));
  }
  fmt::print(
      "plain steps with and without publication ({} each, interleaved): p50 {:.3f} and {:.3f} ms, "
      "median ratio {:.3f}; p99 {:.3f} and {:.3f} ms, median ratio {:.3f}\n",
      with.size(), 1e3 * quantile(with, 0.5), 1e3 * quantile(without, 0.5), quantile(p50, 0.5),
      1e3 * quantile(with, 0.99), 1e3 * quantile(without, 0.99), quantile(p99, 0.5));
  host.reset();
  std::filesystem::remove_all(folder);
}

void tell(std::string_view what) { fmt::print(stderr, "measuring {} …\n", what); }

constexpr std::uint32_t kMemoryRounds = 4;

void memory(ModelSpec spec) {
  spec.cache.disk_directory.clear();
  const std::size_t before = resident_bytes();
  auto host = Host::create({}).value();
  const auto use = [&](std::uint32_t round) {
    tell(fmt::format("memory, round {} of {}", round, kMemoryRounds));
    (void)host->load(spec);
    for (std::uint32_t i = 0; i < 12; ++i) (void)ask(*host, made_up(i, 1500), 16, "", true, 0);
  };
  use(1);
  std::size_t explained = 0;
  for (const LedgerRow& row : host->ledger()) explained += row.bytes;
  const std::size_t resident = resident_bytes() - before;
  fmt::print("memory: {:.0f} MB resident above the start, the ledger explains {:.0f} MB = {:.3f}\n",
             static_cast<double>(resident) / 1e6, static_cast<double>(explained) / 1e6,
             static_cast<double>(explained) / static_cast<double>(resident));
  const std::size_t pair = host->stats().memory_used;
  std::vector<std::size_t> after;
  for (std::uint32_t round = 1; round <= kMemoryRounds; ++round) {
    if (round > 1) use(round);
    (void)host->unload("pair");
    after.push_back(resident_bytes() - before);
  }
  const double first = static_cast<double>(after.front());
  const double more = static_cast<double>(after.back()) - first;
  fmt::print(
      "  after the first unload {:.1f} MB of it remain ({:.1f} % of the pair's bytes), after three "
      "more rounds {:+.1f} MB ({:+.2f} %)\n",
      first / 1e6, 100 * first / static_cast<double>(pair), more / 1e6,
      100 * more / static_cast<double>(pair));
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: host_bench TARGET [DRAFT] (bench/host --help)\n");
    return 2;
  }
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("dh_host_bench_{}", ::getpid()))
          .string();
  ModelSpec spec;
  spec.name = "pair";
  spec.target = argv[1];
  if (argc > 2) spec.draft = argv[2];
  spec.cache.disk_directory = folder;
  spec.cache.disk_free_bytes = 0;
  memory(spec);
  tell("lookups");
  lookup();
  tell("first ids, cold, from RAM and from disk");
  first_token(spec, folder);
  tell("steps with and without publication");
  publication(spec, folder);
  return 0;
}

}  // namespace
}  // namespace drafthouse

int main(int argc, char** argv) { return drafthouse::run(argc, argv); }
