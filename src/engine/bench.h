#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drafthouse/engine.h"
#include "drafthouse/status.h"
#include "engine/timed_device.h"

namespace drafthouse {

// How fast a loaded pair is on this machine, and how near that is to what the machine can do.
//
// All figures are of one run. A round measures every cell (each width, the draft, a turn, …) once,
// so that a neighbour who slows the machine down slows all of them; figures are medians of rounds.
// Neighbours on the same host move the read bandwidth by a third within seconds, and where they
// share a core, its instruction peaks by half: so a round also samples both before and after its
// widths, and shares of them are taken round by round.

struct BenchOptions {
  // Positions that the state holds while passes are measured; 0 stands for a state of one position.
  std::vector<std::uint32_t> contexts = {0};
  // Rounds go on until this is spent, within the bounds below.
  double seconds_per_context = 20.0;
  std::uint32_t rounds_min = 3;
  std::uint32_t rounds_max = 40;
  std::uint32_t prefill_tokens = 512;
  bool profile = false;
  // Told what is measured next; may be empty.
  std::function<void(std::string_view what)> progress;
  const std::atomic<bool>* cancel = nullptr;  // may be null
};

// Positions that a sequence needs past the largest context that is measured.
std::uint32_t bench_room(const BenchOptions& options);

struct BenchWidth {
  std::uint32_t width = 0;
  double ms = 0;
  double ratio = 0;            // to width 1
  double bandwidth_share = 0;  // weight bytes ÷ time ÷ read bandwidth
  double gops = 0;
  // max(weight bytes ÷ read bandwidth, operations ÷ peak) ÷ time
  double roofline_share = 0;
  // Experts that the pass reads in a layer, on average over the layers that have some; each counts
  // once, however many rows choose it. 0: the target has none. Random weights choose more alike
  // than trained ones.
  double experts = 0;
};

struct BenchContext {
  std::uint32_t context = 0;
  std::uint32_t rounds = 0;
  std::vector<BenchWidth> widths;
  double step_ms = 0;                // a plain turn
  double outside_kernels_share = 0;  // of a plain turn: not inside the device's operations
  // Zero without a draft. The turn has turn_width rows and starts with taps to project.
  std::uint32_t turn_width = 0;
  double draft_ms = 0;
  double turn_ms = 0;
  double turn_ratio = 0;       // to widths[0].ms
  double turn_over_parts = 0;  // to draft_ms + the verify pass of the same width
  std::uint32_t prefill_tokens = 0;
  double prefill_tok_s = 0;
  double prefill_peak_share = 0;
};

// Mean times of a pass by operation.
struct BenchProfile {
  std::uint32_t context = 0;
  std::string pass;
  double ms = 0;
  std::vector<OperationTime> operations;
};

struct BenchReport {
  double bandwidth_before_gbps = 0;
  double bandwidth_during_gbps = 0;  // median of what the rounds saw
  double bandwidth_after_gbps = 0;
  // The better of before and after. fp32: what f16 and f32 weights are held against; the same as
  // float where the kernels have no bf16 dot product.
  double peak_float_gops = 0;
  double peak_fp32_gops = 0;
  double peak_int8_gops = 0;
  double peak_float_during_gops = 0;  // medians of what the rounds saw
  double peak_int8_during_gops = 0;
  // CPU time of the process ÷ (wall time × threads) while something was timed; see cpu_share.h.
  double cpu_share = 1;
  std::uint64_t weight_bytes = 0;        // read by a pass of one row
  std::uint64_t operations_per_row = 0;  // of matrix products
  std::vector<BenchContext> contexts;    // ascending
  std::vector<BenchProfile> profiles;
  std::vector<std::pair<std::string, std::size_t>> memory;
};

// Random ids are fed, so widths and acceptance say nothing about text. The engine's runner is
// replaced; after a failure the engine can only be dropped. context_overflow when a context leaves
// no room for bench_room().
Result<BenchReport> run_bench(Engine::Internals& parts, const BenchOptions& options);

}  // namespace drafthouse
