#include "turn/cost_measure.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace drafthouse {
namespace {

// A round over all widths is repeated until this is spent, so that one disturbed pass does not
// decide. A pass counts as what the best one of its kind took: a busy machine gets more rounds, up
// to a limit.
constexpr double kBudgetSeconds = 0.25;
constexpr double kLimitSeconds = 1.5;
constexpr int kRoundsMax = 5;
constexpr std::uint32_t kContext = 64;

using Times = std::map<std::uint32_t, double>;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the best.
double keep_best(Times& times, std::uint32_t key, double seconds) {
  double& best = times.try_emplace(key, seconds).first->second;
  best = std::min(best, seconds);
  return best;
}

std::vector<CostTable::Point> points_of(const Times& times) {
  std::vector<CostTable::Point> points;
  for (const auto& [rows, seconds] : times) points.push_back({rows, seconds});
  return points;
}

}  // namespace

Result<CostTable> measure_costs(TurnRunner& runner, const std::atomic<bool>* cancel) {
  const bool drafts = runner.draft() != nullptr;
  Result<Sequence> started = runner.start(drafts);
  if (!started.ok()) return started.status();
  Sequence& sequence = started.value();
  const TurnLimits& limits = runner.limits();
  const std::uint32_t context = std::min(kContext, limits.context / 2);
  const std::uint32_t vocabulary = runner.target().config().vocab_size;
  // Ids that all differ, so that a pass of several rows chooses as many experts as a text would.
  std::vector<std::uint32_t> prompt;
  for (std::uint32_t i = 0; i < std::max(1u, context); ++i) {
    prompt.push_back((i * 7919u + 11u) % vocabulary);
  }
  // Also the warm-up: it touches every weight and most of the scratch.
  if (Status s = runner.prefill(sequence, prompt, cancel); !s.ok()) return s;

  const auto rows_most =
      static_cast<std::uint32_t>(std::min<std::size_t>(limits.context - context, prompt.size()));
  const std::uint32_t widest = std::min(runner.block_size(), rows_most);
  std::vector<std::uint32_t> widths;
  for (const std::uint32_t width : {1u, 16u, 4u, 8u, 2u, 12u, 6u, 3u}) {
    if (width <= widest) widths.push_back(width);
  }
  if (std::find(widths.begin(), widths.end(), widest) == widths.end()) widths.push_back(widest);

  Times verify;
  Times draft;
  Times blocks;
  const double start = now();
  double used = 0;
  const auto spent = [&] { return used > kBudgetSeconds || now() - start > kLimitSeconds; };
  const auto time_verify = [&](std::uint32_t rows) {
    const double begin = now();
    Status status = runner.verify_pass(sequence, {prompt.data(), rows}, cancel);
    used += keep_best(verify, rows, now() - begin);
    return status;
  };
  const auto time_draft = [&](Times& times, std::uint32_t key, std::uint32_t width,
                              std::uint32_t count) {
    const double begin = now();
    Status status = runner.draft_pass(sequence, width, count, cancel);
    used += keep_best(times, key, now() - begin);
    return status;
  };
  for (int round = 0; round < kRoundsMax && (round == 0 || !spent()); ++round) {
    for (const std::uint32_t width : widths) {
      const bool needed = width == 1 || width == 4 || width == std::min(widest, 16u);
      if (round == 0 && !needed && spent()) continue;
      if (Status s = time_verify(width); !s.ok()) return s;
      if (!drafts || width < 2) continue;
      if (Status s = time_draft(draft, width, width, 1); !s.ok()) return s;
    }
    // The rows of several sequences, here all of one: whose they are matters to attention only.
    for (const std::uint32_t count : {2u, 4u}) {
      const std::uint32_t rows = count * widest;
      if (round > 1 || spent() || count > limits.sequences) break;
      if (rows <= rows_most) {
        if (Status s = time_verify(rows); !s.ok()) return s;
      }
      if (!drafts || widest < 2) continue;
      if (Status s = time_draft(blocks, count, widest, count); !s.ok()) return s;
    }
  }
  if (!blocks.empty()) blocks[1] = draft.at(widest);
  return CostTable(points_of(verify), points_of(draft), points_of(blocks));
}

}  // namespace drafthouse
