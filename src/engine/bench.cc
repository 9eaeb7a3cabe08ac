#include "engine/bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>

#include "base/thread_pool.h"
#include "engine/bench_floor.h"
#include "engine/cpu_share.h"
#include "engine/internals.h"
#include "engine/probe.h"

namespace drafthouse {
namespace {

constexpr std::array<std::uint32_t, 6> kWidths = {1, 2, 4, 8, 12, 16};
constexpr std::uint32_t kWidest = kWidths.back();
constexpr int kProfilePasses = 5;
constexpr int kBandwidthPasses = 3;
// Prefill may take this much of the time; on a slow machine it is not measured in every round.
constexpr double kPrefillShareMax = 0.4;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of all threads of the process.
double cpu_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// By one pass.
struct ExpertsRead {
  double per_layer = 0;
  double bytes = 0;
};

// What the machine could do while something was timed.
struct Limits {
  double bandwidth_gbps = 0;
  MachinePeaks peaks;
};

Limits mean_of(const Limits& a, const Limits& b) {
  return {.bandwidth_gbps = (a.bandwidth_gbps + b.bandwidth_gbps) / 2,
          .peaks = mean_of(a.peaks, b.peaks)};
}

// Seconds of every cell, one entry a round.
struct Samples {
  std::uint32_t context = 0;
  std::map<std::uint32_t, std::vector<double>> verify;
  std::map<std::uint32_t, ExpertsRead> experts;
  std::vector<Limits> limits;  // of the passes of `verify`
  std::vector<double> draft;
  std::vector<double> turn;
  std::vector<double> step;
  std::vector<double> outside;              // shares
  std::vector<double> prefill;              // not in every round
  std::vector<MachinePeaks> prefill_peaks;  // of the same entry
};

class Bench {
 public:
  Bench(Engine::Internals& parts, const BenchOptions& options)
      : parts_(parts), options_(options), limits_(parts.runner->limits()), device_(*parts.device) {}

  Result<BenchReport> run();

 private:
  Status check() const;
  Status prepare();
  Status finish();
  void look_at_machine(double& bandwidth_gbps, MachinePeaks& peaks);
  Status measure(std::uint32_t context);
  Limits limits_now();
  Status fill(std::uint32_t context);
  Status round(Samples& samples);
  Status count_experts(Samples& samples);
  Status profile(std::uint32_t context);

  Status verify(std::uint32_t width) {
    return runner_->verify_pass(*sequence_, {ids_.data(), width}, options_.cancel);
  }
  Status draft() { return runner_->draft_pass(*sequence_, turn_width_, 1, options_.cancel); }
  Status turn() {
    Result<TurnOutcome> outcome = runner_->take_turn(*sequence_, turn_width_, options_.cancel);
    return outcome.ok() ? Status() : outcome.status();
  }
  Status plain_step();
  Status prefill();
  // Random ids after those that the state holds, up to `length`.
  Status prefill_to(std::uint32_t length);
  // Runs `pass` without the draft's side of the sequence, then takes back what it appended.
  template <class Pass>
  Status undrafted(Pass&& pass);

  template <class Pass>
  Status timed(std::vector<double>& samples, Pass&& pass);
  void tell(std::string_view what) const {
    if (options_.progress) options_.progress(what);
  }
  BenchContext summary(const Samples& samples) const;

  Engine::Internals& parts_;
  const BenchOptions& options_;
  const TurnLimits limits_;
  TimedDevice device_;
  std::unique_ptr<TurnRunner> runner_;
  std::optional<Sequence> sequence_;
  std::vector<std::uint32_t> ids_;  // random
  MemoryLedger probe_ledger_;       // the probe's memory is no part of the engine's
  Buffer probe_memory_;
  std::vector<Samples> samples_;  // one entry a context
  std::uint32_t turn_width_ = 0;  // 0 without a draft
  double cpu_s_ = 0;              // while something was timed, like wall_s_
  double wall_s_ = 0;
  BenchReport report_;
};

template <class Pass>
Status Bench::timed(std::vector<double>& samples, Pass&& pass) {
  if (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) {
    return Status(Code::cancelled, "cancelled during a bench");
  }
  const double cpu = cpu_seconds();
  const Clock::time_point start = Clock::now();
  if (Status s = pass(); !s.ok()) return s;
  samples.push_back(seconds_since(start));
  cpu_s_ += cpu_seconds() - cpu;
  wall_s_ += samples.back();
  return {};
}

template <class Pass>
Status Bench::undrafted(Pass&& pass) {
  std::optional<SequenceCache> held;
  if (sequence_->drafts()) {
    held.emplace(std::move(*sequence_->draft));
    sequence_->draft.reset();
  }
  // Recurrent layers go back no further than their last pass.
  SequenceCache before = sequence_->target.fork();
  const std::vector<std::uint32_t> ids = sequence_->ids;
  Status status = pass();
  sequence_->target = std::move(before);
  sequence_->ids.assign(ids.begin(), ids.end());
  if (held.has_value()) sequence_->draft.emplace(std::move(*held));
  return status;
}

Status Bench::plain_step() {
  Result<TurnOutcome> outcome = runner_->take_turn(*sequence_, 1, options_.cancel);
  return outcome.ok() ? Status() : outcome.status();
}

Status Bench::prefill() { return prefill_to(sequence_->target.length() + options_.prefill_tokens); }

Status Bench::prefill_to(std::uint32_t length) {
  std::vector<std::uint32_t> prompt = std::move(sequence_->ids);
  sequence_->ids.clear();
  prompt.resize(sequence_->target.length());
  while (prompt.size() < length) prompt.push_back(ids_[prompt.size() % ids_.size()]);
  return runner_->prefill(*sequence_, prompt, options_.cancel);
}

Status Bench::check() const {
  const std::uint32_t room = bench_room(options_);
  const std::uint32_t limit = limits_.context;
  for (const std::uint32_t context : options_.contexts) {
    if (context <= limit && limit - context >= room) continue;
    return Status(Code::context_overflow,
                  fmt::format("context {} cannot be measured: a sequence has {} positions, and {} "
                              "are needed past the context",
                              context, limit, room));
  }
  return {};
}

Status Bench::fill(std::uint32_t context) {
  const std::uint32_t wanted = std::max(1u, context);
  if (!sequence_.has_value() || sequence_->target.length() >= wanted) {
    sequence_.reset();
    Result<Sequence> started = runner_->start(turn_width_ != 0);
    if (!started.ok()) return started.status();
    sequence_.emplace(std::move(started).value());
  }
  if (sequence_->drafts()) {
    if (Status s = runner_->settle(*sequence_); !s.ok()) return s;
  }
  // A shorter context is the beginning of a longer one.
  if (Status s = prefill_to(wanted); !s.ok()) return s;

  // Warms up, and leaves taps for the first turn that is measured.
  if (Status s = verify(kWidest); !s.ok()) return s;
  if (Status s = verify(1); !s.ok()) return s;
  return turn_width_ != 0 ? turn() : Status();
}

Limits Bench::limits_now() {
  const Kernels& kernels = parts_.device->kernels();
  return {
      .bandwidth_gbps = read_bandwidth_gbps(*parts_.pool, kernels, probe_memory_, kBandwidthPasses),
      .peaks = measure_peaks(*parts_.pool, kernels, 1)};
}

Status Bench::round(Samples& samples) {
  const Limits before = limits_now();
  for (const std::uint32_t width : kWidths) {
    if (Status s = timed(samples.verify[width], [&] { return verify(width); }); !s.ok()) return s;
  }
  samples.limits.push_back(mean_of(before, limits_now()));
  if (turn_width_ != 0) {
    if (Status s = timed(samples.draft, [&] { return draft(); }); !s.ok()) return s;
    if (Status s = timed(samples.turn, [&] { return turn(); }); !s.ok()) return s;
  }
  if (Status s = undrafted([&] { return timed(samples.step, [&] { return plain_step(); }); });
      !s.ok()) {
    return s;
  }
  std::vector<double> whole;
  device_.clear();
  device_.measure(true);
  Status status = undrafted([&] { return timed(whole, [&] { return plain_step(); }); });
  device_.measure(false);
  if (!status.ok()) return status;
  samples.outside.push_back(1.0 - device_.seconds() / whole.front());
  return {};
}

// What the passes of each width read; the rows are the same in every round.
Status Bench::count_experts(Samples& samples) {
  if (parts_.target->config().experts.count == 0) return {};
  for (const std::uint32_t width : kWidths) {
    device_.clear();
    device_.measure(true);
    Status status = verify(width);
    device_.measure(false);
    if (!status.ok()) return status;
    ExpertsRead& read = samples.experts[width];
    std::uint64_t calls = 0;
    for (const OperationTime& operation : device_.operations()) {
      if (operation.experts == 0) continue;
      read.per_layer += static_cast<double>(operation.experts);
      read.bytes += static_cast<double>(operation.weight_bytes);
      calls += operation.calls;
    }
    read.per_layer /= static_cast<double>(std::max<std::uint64_t>(1, calls));
  }
  return {};
}

Status Bench::measure(std::uint32_t context) {
  tell(fmt::format("context {}: filling", context));
  if (Status s = fill(context); !s.ok()) return s;
  Samples& samples = samples_.emplace_back();
  samples.context = context;
  if (Status s = count_experts(samples); !s.ok()) return s;
  const Clock::time_point start = Clock::now();
  double prefill_s = 0;
  std::uint32_t rounds = 0;
  while (rounds < options_.rounds_max &&
         (rounds < options_.rounds_min || seconds_since(start) < options_.seconds_per_context)) {
    tell(fmt::format("context {}: round {}", context, rounds + 1));
    if (Status s = round(samples); !s.ok()) return s;
    if (rounds == 0 || prefill_s < kPrefillShareMax * seconds_since(start)) {
      const MachinePeaks before = samples.limits.back().peaks;
      if (Status s = undrafted([&] { return timed(samples.prefill, [&] { return prefill(); }); });
          !s.ok()) {
        return s;
      }
      samples.prefill_peaks.push_back(mean_of(before, limits_now().peaks));
      prefill_s += samples.prefill.back();
    }
    ++rounds;
  }
  return options_.profile ? profile(context) : Status();
}

BenchContext Bench::summary(const Samples& samples) const {
  const auto floor_s = [&](const MachinePeaks& peaks, std::uint32_t rows, std::uint32_t head_rows) {
    return PassFloor(*parts_.target, peaks).seconds(rows, head_rows);
  };
  BenchContext result;
  result.context = samples.context;
  result.rounds = static_cast<std::uint32_t>(samples.limits.size());
  const double step = median(samples.verify.at(1));
  const auto experts = [&](std::uint32_t width) {
    const auto read = samples.experts.find(width);
    return read == samples.experts.end() ? ExpertsRead{} : read->second;
  };
  for (const std::uint32_t width : kWidths) {
    const double bytes =
        static_cast<double>(parts_.target->pass_bytes()) + experts(width).bytes - experts(1).bytes;
    const std::vector<double>& times = samples.verify.at(width);
    std::vector<double> read_shares;
    std::vector<double> shares;
    for (std::size_t round = 0; round < times.size(); ++round) {
      const Limits& limits = samples.limits[round];
      const double read_s = bytes / (limits.bandwidth_gbps * 1e9);
      read_shares.push_back(read_s / times[round]);
      shares.push_back(std::max(read_s, floor_s(limits.peaks, width, width)) / times[round]);
    }
    const double seconds = median(times);
    result.widths.push_back(
        {.width = width,
         .ms = seconds * 1e3,
         .ratio = seconds / step,
         .bandwidth_share = median(read_shares),
         .gops = static_cast<double>(parts_.target->operations_per_row()) * width / seconds / 1e9,
         .roofline_share = median(shares),
         .experts = experts(width).per_layer});
  }
  result.step_ms = median(samples.step) * 1e3;
  result.outside_kernels_share = std::max(0.0, median(samples.outside));
  if (turn_width_ != 0) {
    const double verify_ms = median(samples.verify.at(turn_width_)) * 1e3;
    result.turn_width = turn_width_;
    result.draft_ms = median(samples.draft) * 1e3;
    result.turn_ms = median(samples.turn) * 1e3;
    result.turn_ratio = result.turn_ms / (step * 1e3);
    result.turn_over_parts = result.turn_ms / (result.draft_ms + verify_ms);
  }
  std::vector<double> shares;
  for (std::size_t i = 0; i < samples.prefill.size(); ++i) {
    shares.push_back(floor_s(samples.prefill_peaks[i], options_.prefill_tokens, 1) /
                     samples.prefill[i]);
  }
  result.prefill_tokens = options_.prefill_tokens;
  result.prefill_tok_s = options_.prefill_tokens / median(samples.prefill);
  result.prefill_peak_share = median(shares);
  return result;
}

Status Bench::profile(std::uint32_t context) {
  const auto add = [&](const std::string& name, int passes, auto&& pass) -> Status {
    tell(fmt::format("context {}: profile of {}", context, name));
    device_.clear();
    device_.measure(true);
    std::vector<double> seconds;
    Status status;
    for (int i = 0; i < passes && status.ok(); ++i) status = timed(seconds, pass);
    device_.measure(false);
    if (!status.ok()) return status;
    BenchProfile result{.context = context, .pass = name, .ms = 0, .operations = {}};
    for (const double s : seconds) result.ms += s * 1e3 / passes;
    result.operations = device_.operations();
    for (OperationTime& operation : result.operations) {
      operation.calls /= static_cast<std::uint64_t>(passes);
      operation.weight_bytes /= static_cast<std::uint64_t>(passes);
      operation.seconds /= passes;
    }
    report_.profiles.push_back(std::move(result));
    return {};
  };
  for (const std::uint32_t width : {1u, 4u, 8u, kWidest}) {
    if (Status s =
            add(fmt::format("width {}", width), kProfilePasses, [&] { return verify(width); });
        !s.ok()) {
      return s;
    }
  }
  if (turn_width_ != 0) {
    if (Status s = add("draft", kProfilePasses, [&] { return draft(); }); !s.ok()) return s;
    if (Status s = add("turn", kProfilePasses, [&] { return turn(); }); !s.ok()) return s;
  }
  return add("prefill", 1, [&] { return undrafted([&] { return prefill(); }); });
}

Status Bench::prepare() {
  std::uint64_t state = 1;
  for (std::uint32_t i = 0; i < std::max(kWidest, options_.prefill_tokens); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids_.push_back(static_cast<std::uint32_t>(state >> 33) % limits_.choices);
  }
  for (const std::uint32_t width : kWidths) {
    if (width >= 2 && width <= parts_.runner->block_size()) turn_width_ = width;
  }
  Result<Buffer> memory = make_probe_memory(*parts_.pool, probe_ledger_);
  if (!memory.ok()) return memory.status();
  probe_memory_ = std::move(memory).value();

  parts_.runner.reset();
  Result<std::unique_ptr<TurnRunner>> runner = TurnRunner::create(
      device_, *parts_.target, parts_.draft, limits_, parts_.pages, parts_.ledger);
  if (!runner.ok()) return runner.status();
  runner_ = std::move(runner).value();
  return {};
}

void Bench::look_at_machine(double& bandwidth_gbps, MachinePeaks& peaks) {
  tell("what the machine can do");
  const Kernels& kernels = parts_.device->kernels();
  bandwidth_gbps = read_bandwidth_gbps(*parts_.pool, kernels, probe_memory_);
  peaks = better_of(peaks, measure_peaks(*parts_.pool, kernels));
}

Status Bench::finish() {
  std::size_t total = 0;
  for (std::size_t i = 0; i < kMemoryTags; ++i) {
    const auto tag = static_cast<MemoryTag>(i);
    report_.memory.emplace_back(name_of(tag), parts_.bytes(tag));
    total += parts_.bytes(tag);
  }
  report_.memory.emplace_back("total", total);
  sequence_.reset();
  runner_.reset();
  Result<std::unique_ptr<TurnRunner>> runner = TurnRunner::create(
      *parts_.device, *parts_.target, parts_.draft, limits_, parts_.pages, parts_.ledger);
  if (!runner.ok()) return runner.status();
  parts_.runner = std::move(runner).value();
  return {};
}

Result<BenchReport> Bench::run() {
  if (Status s = check(); !s.ok()) return s;
  if (Status s = prepare(); !s.ok()) return s;
  MachinePeaks peaks;
  look_at_machine(report_.bandwidth_before_gbps, peaks);
  std::vector<std::uint32_t> contexts = options_.contexts;
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  for (const std::uint32_t context : contexts) {
    if (Status s = measure(context); !s.ok()) return s;
  }
  look_at_machine(report_.bandwidth_after_gbps, peaks);
  report_.peak_float_gops = peaks.float_gops;
  report_.peak_fp32_gops = peaks.fp32_gops;
  report_.peak_int8_gops = peaks.int8_gops;
  // More threads than cores wait for each other, not for neighbours.
  const unsigned threads = std::min(parts_.info.threads, available_cores());
  report_.cpu_share = cpu_share(cpu_s_, wall_s_, threads);
  report_.weight_bytes = parts_.target->pass_bytes();
  report_.operations_per_row = parts_.target->operations_per_row();
  std::vector<double> bandwidth;
  std::vector<double> int8;
  std::vector<double> floats;
  for (const Samples& samples : samples_) {
    report_.contexts.push_back(summary(samples));
    for (const Limits& limits : samples.limits) {
      bandwidth.push_back(limits.bandwidth_gbps);
      floats.push_back(limits.peaks.float_gops);
      int8.push_back(limits.peaks.int8_gops);
    }
  }
  report_.bandwidth_during_gbps = median(bandwidth);
  report_.peak_float_during_gops = median(floats);
  report_.peak_int8_during_gops = median(int8);
  if (Status s = finish(); !s.ok()) return s;
  return std::move(report_);
}

}  // namespace

std::uint32_t bench_room(const BenchOptions& options) {
  // Every turn may gain a whole block.
  const std::uint32_t turns = options.rounds_max + kProfilePasses + 2;
  return options.prefill_tokens + turns * kWidest;
}

Result<BenchReport> run_bench(Engine::Internals& parts, const BenchOptions& options) {
  return Bench(parts, options).run();
}

}  // namespace drafthouse
