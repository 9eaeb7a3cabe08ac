// Matrix products of every path of this CPU, over weights that no cache holds, against the read
// bandwidth and the instruction peak of the same minutes. Each iteration measures all three in
// turn. Counters:
//   GB/s, GOP/s   weights read and operations done, median
//   read, peak    the probes' GB/s and GOP/s, median
//   bw_share      GB/s ÷ read
//   roofline      max(bytes ÷ read, operations ÷ peak) ÷ time, median
//   roof_best     the same from the best times of all three: less of a busy machine, more luck

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/test_rows.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kInputs = 2048;
constexpr std::uint32_t kOutputs = 2048;
constexpr std::size_t kWeightBytes = std::size_t{320} << 20;
constexpr std::uint32_t kMatricesForManyRows = 4;
constexpr std::size_t kChunkBytes = 256 * 1024;
constexpr std::uint32_t kRowCounts[] = {1, 4, 8, 16, 512};

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Never freed before the benchmarks end; allocated once.
struct Shared {
  MemoryLedger ledger;
  ThreadPool pool{0};
  Buffer weights = must(kWeightBytes, MemoryTag::weights);
  Buffer inputs = must(act_bytes(ActKind::f32, 512, kInputs), MemoryTag::activations);
  Buffer tiles = must(act_bytes(ActKind::f32, 512, kInputs), MemoryTag::activations);
  Buffer out = must(std::size_t{512} * kOutputs * 4, MemoryTag::activations);

  Buffer must(std::size_t bytes, MemoryTag tag) {
    Result<Buffer> buffer = Buffer::allocate(bytes, tag, ledger);
    if (!buffer.ok()) {
      fmt::print(stderr, "{}\n", buffer.status().message());
      std::exit(1);
    }
    return std::move(buffer).value();
  }
};

struct Case {
  Isa isa;
  Dtype kind;
  ActKind act;
  std::uint32_t rows;
  RowFormat format;
};

// Packs one column block of plausible numbers and repeats it: the values do not matter for speed,
// as long as none is a denormal or infinite.
void fill_weights(Shared& shared, const RowFormat& format) {
  std::mt19937 random(1);
  const std::vector<std::byte> row = testing::random_row(format, kInputs, random);
  const std::byte* rows[kBlockOutputs];
  std::fill(std::begin(rows), std::end(rows), row.data());
  const std::size_t block_bytes = packed_block_bytes(packed_kind(format), kInputs);
  pack_block(format, kInputs, rows, shared.weights.data());
  for (std::size_t at = block_bytes; at + block_bytes <= kWeightBytes; at += block_bytes) {
    std::memcpy(shared.weights.data() + at, shared.weights.data(), block_bytes);
  }
}

void fill_inputs(Shared& shared, const Case& test) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  float* inputs = shared.inputs.as<float>();
  for (std::size_t i = 0; i < std::size_t{test.rows} * kInputs; ++i) inputs[i] = normal(random);
  for (std::uint32_t row = 0; row < test.rows; row += kTileRows) {
    kernels_for(test.isa).pack_activations(
        test.act, inputs + std::size_t{row} * kInputs, kInputs,
        std::min(kTileRows, test.rows - row), kInputs,
        shared.tiles.data() + row / kTileRows * act_tile_bytes(test.act, kInputs));
  }
}

void multiply(Shared& shared, const Case& test, std::uint32_t matrices) {
  const std::size_t matrix_bytes = packed_bytes(test.kind, kOutputs, kInputs);
  const std::uint32_t blocks = column_blocks(kOutputs);
  const auto at_once = static_cast<std::uint32_t>(
      std::max<std::size_t>(4, kChunkBytes / packed_block_bytes(test.kind, kInputs) / 4 * 4));
  for (std::uint32_t m = 0; m < matrices; ++m) {
    MatmulJob job;
    job.weights = {test.kind, kOutputs, kInputs, shared.weights.data() + m * matrix_bytes};
    job.act = test.act;
    job.x = shared.tiles.data();
    job.rows = test.rows;
    job.out = shared.out.as<float>();
    job.out_stride = kOutputs;
    shared.pool.run((blocks + at_once - 1) / at_once, [&](unsigned, std::uint32_t chunk) {
      MatmulJob part = job;
      part.block_begin = chunk * at_once;
      part.block_end = std::min(blocks, part.block_begin + at_once);
      kernels_for(test.isa).matmul(part);
    });
  }
}

void read_all(Shared& shared, const Kernels& kernels) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  shared.pool.run(kWeightBytes / kPart, [&](unsigned, std::uint32_t chunk) {
    benchmark::DoNotOptimize(kernels.read_bytes(shared.weights.data() + chunk * kPart, kPart));
  });
}

// Operations per second of all threads.
double peak_rate(Shared& shared, const Case& test) {
  const Kernels& kernels = kernels_for(test.isa);
  const auto probe = test.act == ActKind::int8 ? kernels.peak_int8 : kernels.peak_float;
  std::vector<std::uint64_t> ops(shared.pool.threads());
  const double seconds = seconds_of([&] {
    shared.pool.run(shared.pool.threads() * 8,
                    [&](unsigned thread, std::uint32_t) { ops[thread] += probe(4000); });
  });
  std::uint64_t total = 0;
  for (const std::uint64_t count : ops) total += count;
  return static_cast<double>(total) / seconds;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void run_case(benchmark::State& state, Shared& shared, const Case& test) {
  fill_weights(shared, test.format);
  fill_inputs(shared, test);
  const std::size_t matrix_bytes = packed_bytes(test.kind, kOutputs, kInputs);
  std::uint32_t matrices = static_cast<std::uint32_t>(kWeightBytes / matrix_bytes);
  if (test.rows > 64) matrices = std::min(matrices, kMatricesForManyRows);
  const double bytes = static_cast<double>(matrices * matrix_bytes);
  const double ops = 2.0 * matrices * static_cast<double>(kOutputs) * kInputs * test.rows;

  std::vector<double> times, reads, peaks;
  for (auto _ : state) {
    reads.push_back(static_cast<double>(kWeightBytes) /
                    seconds_of([&] { read_all(shared, kernels_for(test.isa)); }));
    peaks.push_back(peak_rate(shared, test));
    times.push_back(seconds_of([&] { multiply(shared, test, matrices); }));
    state.SetIterationTime(times.back());
  }
  const double time = median(times);
  const double read = median(reads);
  const double peak = median(peaks);
  const double best_bound = std::max(bytes / *std::max_element(reads.begin(), reads.end()),
                                     ops / *std::max_element(peaks.begin(), peaks.end()));
  state.counters["GB/s"] = bytes / time * 1e-9;
  state.counters["GOP/s"] = ops / time * 1e-9;
  state.counters["read"] = read * 1e-9;
  state.counters["peak"] = peak * 1e-9;
  state.counters["bw_share"] = bytes / time / read;
  state.counters["roofline"] = std::max(bytes / read, ops / peak) / time;
  state.counters["roof_best"] = best_bound / *std::min_element(times.begin(), times.end());
}

void register_all(Shared& shared) {
  for (const Isa isa : built_isas()) {
    if (!cpu_has(isa)) {
      fmt::print("{}: built, but this CPU lacks it\n", name_of(isa));
      continue;
    }
    for (const RowFormat& format : testing::packed_formats()) {
      const Dtype kind = packed_kind(format);
      for (const bool compute_fp32 : {false, true}) {
        const ActKind act = act_kind_for(kind, compute_fp32);
        if (compute_fp32 && act == act_kind_for(kind, false)) continue;
        for (const std::uint32_t rows : kRowCounts) {
          const Case test{isa, kind, act, rows, format};
          const std::string name = fmt::format("matmul/{}/{}{}/rows:{}", name_of(isa),
                                               name_of(kind), compute_fp32 ? "_fp32" : "", rows);
          benchmark::RegisterBenchmark(
              name.c_str(),
              [&shared, test](benchmark::State& state) { run_case(state, shared, test); })
              ->UseManualTime()
              ->Iterations(9)
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace
}  // namespace drafthouse

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  static drafthouse::Shared shared;
  fmt::print("{} threads\n", shared.pool.threads());
  drafthouse::register_all(shared);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
