#include "turn/cost_measure.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace drafthouse {
namespace {

// A round over all widths is repeated until this is spent, so that one disturbed pass does not decide.
constexpr double kBudgetSeconds = 0.25;
constexpr int kRoundsMax = 5;
constexpr std::uint32_t kContext = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<CostTable> measure_costs(TurnRunner& runner, const std::atomic<bool>* cancel) {
  const bool drafts = runner.draft() != nullptr;
  Result<Sequence> started = runner.start(drafts);
  if (!started.ok()) return started.status();
  Sequence& sequence = started.value();
  const std::uint32_t context = std::min(kContext, runner.limits().context / 2);
  const std::uint32_t vocabulary = runner.target().config().vocab_size;
  std::vector<std::uint32_t> prompt;
  for (std::uint32_t i = 0; i < std::max(1u, context); ++i) {
    prompt.push_back((i * 7919u + 11u) % vocabulary);
  }
  // Also the warm-up: it touches every weight and most of the scratch.
  if (Status s = runner.prefill(sequence, prompt, cancel); !s.ok()) return s;

  const std::uint32_t widest =
      std::min(runner.block_size(), runner.limits().context - context);
  std::vector<std::uint32_t> widths;
  for (const std::uint32_t width : {1u, 16u, 4u, 8u, 2u, 12u, 6u, 3u}) {
    if (width <= widest) widths.push_back(width);
  }
  if (widest > 16) widths.push_back(widest);

  std::map<std::uint32_t, double> verify;
  std::map<std::uint32_t, double> draft;
  const auto keep_best = [](std::map<std::uint32_t, double>& table, std::uint32_t width, double s) {
    const auto [at, fresh] = table.try_emplace(width, s);
    if (!fresh) at->second = std::min(at->second, s);
  };
  const double start = now();
  for (int round = 0; round < kRoundsMax && (round == 0 || now() - start < kBudgetSeconds); ++round) {
    for (const std::uint32_t width : widths) {
      const bool needed = width == 1 || width == 4 || width == std::min(widest, 16u);
      if (round == 0 && !needed && now() - start > kBudgetSeconds) continue;
      double begin = now();
      const std::span<const std::uint32_t> ids(prompt.data(), std::min<std::size_t>(width, prompt.size()));
      if (Status s = runner.verify_pass(sequence, ids, cancel); !s.ok()) return s;
      keep_best(verify, width, now() - begin);
      if (!drafts || width < 2) continue;
      begin = now();
      if (Status s = runner.draft_pass(sequence, width, 1, cancel); !s.ok()) return s;
      keep_best(draft, width, now() - begin);
    }
  }
  std::vector<CostTable::Point> verify_points;
  std::vector<CostTable::Point> draft_points;
  for (const auto& [rows, seconds] : verify) verify_points.push_back({rows, seconds});
  for (const auto& [rows, seconds] : draft) draft_points.push_back({rows, seconds});
  return CostTable(std::move(verify_points), std::move(draft_points));
}

}  // namespace drafthouse
