#include "cli/figures.h"

#include <numeric>

namespace drafthouse::cli {

double acceptance(const GenerateResult& result) {
  const std::vector<std::uint32_t>& gained = result.accepted_per_turn;
  if (gained.empty()) return 0;
  return std::accumulate(gained.begin(), gained.end(), 0.0) / static_cast<double>(gained.size());
}

double tokens_per_second(const GenerateResult& result) {
  if (result.ids.size() < 2 || result.timings.decode_s <= 0) return 0;
  return static_cast<double>(result.ids.size() - 1) / result.timings.decode_s;
}

}  // namespace drafthouse::cli
