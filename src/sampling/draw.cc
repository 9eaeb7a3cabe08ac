#include "sampling/draw.h"

#include <algorithm>

namespace drafthouse {

std::uint32_t draw_candidate(const Noise& noise, std::uint32_t position,
                             std::span<Candidate> from) {
  std::sort(from.begin(), from.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  Race groups(noise, position, Purpose::group);
  for (std::size_t i = 0; i < from.size();) {
    const std::uint32_t group = from[i].id / kLogitGroup;
    double sum = 0;
    for (; i < from.size() && from[i].id / kLogitGroup == group; ++i) {
      sum += static_cast<double>(from[i].weight);
    }
    groups.enter(group, sum);
  }
  Race ids(noise, position, Purpose::id);
  for (const Candidate& candidate : from) {
    if (candidate.id / kLogitGroup == groups.winner()) {
      ids.enter(candidate.id, static_cast<double>(candidate.weight));
    }
  }
  return ids.winner();
}

}  // namespace drafthouse
