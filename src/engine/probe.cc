#include "engine/probe.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstring>

namespace drafthouse {
namespace {

constexpr std::size_t kProbeBytes = std::size_t{512} << 20;
// As large as the chunks of a matrix product get, times a few: claiming one costs nothing beside
// it.
constexpr std::size_t kReadChunk = std::size_t{1} << 20;
constexpr double kPassSeconds = 0.025;
constexpr std::uint32_t kPeakChunksPerThread = 16;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Calls pass(size), which returns a rate, with a size that makes it last about `seconds`; the best
// of `passes`.
template <class Pass>
double best_rate(std::uint64_t size, double seconds, int passes, Pass&& pass) {
  for (;;) {
    const Clock::time_point start = Clock::now();
    pass(size);
    const double took = seconds_since(start);
    if (took > seconds / 4) {
      size = std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(static_cast<double>(size) * seconds / took));
      break;
    }
    size *= 2;
  }
  double best = 0;
  for (int i = 0; i < passes; ++i) best = std::max(best, pass(size));
  return best;
}

double peak_gops(ThreadPool& pool, std::uint64_t (*loop)(std::uint64_t), int passes) {
  return best_rate(64, kPassSeconds, passes, [&](std::uint64_t iterations) {
    std::atomic<std::uint64_t> operations{0};
    const Clock::time_point start = Clock::now();
    pool.run(pool.threads() * kPeakChunksPerThread,
             [&](unsigned, std::uint32_t) { operations += loop(iterations); });
    return static_cast<double>(operations.load()) / seconds_since(start) / 1e9;
  });
}

}  // namespace

Result<Buffer> make_probe_memory(ThreadPool& pool, MemoryLedger& ledger) {
  Result<Buffer> made = Buffer::allocate(kProbeBytes, MemoryTag::activations, ledger);
  if (!made.ok()) return made.status();
  std::byte* bytes = made.value().data();
  pool.run(kProbeBytes / kReadChunk, [&](unsigned, std::uint32_t chunk) {
    std::memset(bytes + std::size_t{chunk} * kReadChunk, static_cast<int>(chunk % 255 + 1),
                kReadChunk);
  });
  return made;
}

double read_bandwidth_gbps(ThreadPool& pool, const Kernels& kernels, const Buffer& memory,
                           int passes) {
  assert(memory.size() >= kReadChunk && memory.size() % kReadChunk == 0);
  const std::size_t chunks = memory.size() / kReadChunk;
  std::size_t next = 0;
  std::atomic<std::uint64_t> sink{0};  // so that no read may be left out
  return best_rate(32, kPassSeconds, passes, [&](std::uint64_t count) {
    const Clock::time_point start = Clock::now();
    pool.run(static_cast<std::uint32_t>(count), [&](unsigned, std::uint32_t chunk) {
      sink += kernels.read_bytes(memory.data() + (next + chunk) % chunks * kReadChunk, kReadChunk);
    });
    const double rate = static_cast<double>(count * kReadChunk) / seconds_since(start) / 1e9;
    next = (next + count) % chunks;
    return rate;
  });
}

double peak_float_gops(ThreadPool& pool, const Kernels& kernels, int passes) {
  return peak_gops(pool, kernels.peak_float, passes);
}

double peak_int8_gops(ThreadPool& pool, const Kernels& kernels, int passes) {
  return peak_gops(pool, kernels.peak_int8, passes);
}

}  // namespace drafthouse
