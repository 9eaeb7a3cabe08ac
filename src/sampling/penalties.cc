#include "sampling/penalties.h"

#include <algorithm>
#include <cmath>

namespace drafthouse {
namespace {

// Beyond this a penalty takes an id out whatever its logit was; keeps the power finite.
constexpr float kDryPenaltyMax = 1e30f;

float dry_penalty(const SamplingOptions& options, std::uint32_t length) {
  // By multiplication, so that it is the same everywhere.
  float penalty = options.dry_multiplier;
  for (std::uint32_t n = options.dry_allowed_length; n < length && penalty < kDryPenaltyMax; ++n) {
    penalty *= options.dry_base;
    if (options.dry_base == 1) break;
  }
  return std::min(penalty, kDryPenaltyMax);
}

}  // namespace

void apply_penalties(const SamplingOptions& options, const History& history, std::span<float> row) {
  for (const std::uint32_t id : history.distinct()) {
    if (id >= row.size()) continue;
    float logit = row[id];
    logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (const std::uint32_t count = history.in_answer(id); count > 0) {
      logit -= options.presence_penalty;
      logit -= options.frequency_penalty * static_cast<float>(count);
    }
    row[id] = logit;
  }
}

void apply_dry(const SamplingOptions& options, std::span<const std::uint32_t> ids,
               std::vector<std::uint32_t>& matches, std::span<float> row) {
  if (options.dry_range > 0 && ids.size() > options.dry_range) ids = ids.last(options.dry_range);
  // What follows the last breaker is all that a repetition can be of.
  const auto breaks = [&options](std::uint32_t id) {
    return std::find(options.dry_breaker_ids.begin(), options.dry_breaker_ids.end(), id) !=
           options.dry_breaker_ids.end();
  };
  std::size_t most = 0;
  while (most < ids.size() && !breaks(ids[ids.size() - 1 - most])) ++most;
  if (most < options.dry_allowed_length) return;

  // Z-algorithm on the text read backwards: z[k] ids before place k from the end equal the text's
  // end.
  const std::size_t count = ids.size();
  const auto back = [&ids, count](std::size_t k) { return ids[count - 1 - k]; };
  matches.assign(count, 0);
  for (std::size_t k = 1, left = 0, right = 0; k < count; ++k) {
    std::size_t z = k < right ? std::min<std::size_t>(right - k, matches[k - left]) : 0;
    while (k + z < count && back(z) == back(k + z)) ++z;
    matches[k] = static_cast<std::uint32_t>(z);
    if (k + z > right) {
      left = k;
      right = k + z;
    }
  }
  // The longest repetition that each id continues, where it is long enough: kept at its last place.
  for (std::size_t k = 1; k < count; ++k) {
    const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(matches[k], most));
    const std::uint32_t next = back(k - 1);
    matches[k] = 0;
    if (length < options.dry_allowed_length || next >= row.size() || breaks(next)) continue;
    matches[k] = length;
    for (std::size_t other = 1; other < k; ++other) {
      if (matches[other] == 0 || back(other - 1) != next) continue;
      matches[other] = std::max(matches[other], length);
      matches[k] = 0;
      break;
    }
  }
  for (std::size_t k = 1; k < count; ++k) {
    if (matches[k] > 0) row[back(k - 1)] -= dry_penalty(options, matches[k]);
  }
}

}  // namespace drafthouse
