#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>

namespace drafthouse {
namespace {

// How many are put in order at first; four times as many whenever that was not enough.
constexpr std::size_t kOrderedAtFirst = 64;

// The shortest beginning in the order `before` that has at least `mass`.
template <class Before>
std::span<Candidate> keep_mass(std::span<Candidate> from, double mass, Before&& before) {
  double sum = 0;
  for (std::size_t ordered = 0; ordered < from.size();) {
    const std::size_t next = std::min(from.size(), std::max(kOrderedAtFirst, ordered * 4));
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(ordered);
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(next);
    if (end != from.end()) std::nth_element(begin, end, from.end(), before);
    std::sort(begin, end, before);
    for (; ordered < next; ++ordered) {
      sum += static_cast<double>(from[ordered].weight);
      if (sum >= mass) return from.first(ordered + 1);
    }
  }
  return from;
}

template <class Unwanted>
std::span<Candidate> without(std::span<Candidate> from, Unwanted&& unwanted) {
  const auto end = std::remove_if(from.begin(), from.end(), unwanted);
  return from.first(static_cast<std::size_t>(end - from.begin()));
}

}  // namespace

double total_weight(std::span<const Candidate> from) {
  double sum = 0;
  for (const Candidate& candidate : from) sum += static_cast<double>(candidate.weight);
  return sum;
}

std::span<Candidate> keep_top_k(std::span<Candidate> from, std::uint32_t k) {
  if (from.size() <= k) return from;
  std::nth_element(from.begin(), from.begin() + (k - 1), from.end(), likelier);
  return from.first(k);
}

std::span<Candidate> keep_top_p(std::span<Candidate> from, double p, double total) {
  return keep_mass(from, p * total, likelier);
}

std::span<Candidate> keep_min_p(std::span<Candidate> from, float p) {
  return without(from, [p](const Candidate& candidate) { return candidate.weight < p; });
}

std::span<Candidate> keep_typical(std::span<Candidate> from, double p, float largest, float scale) {
  const double total = total_weight(from);
  // Weights that are too small for a float have no part in anything.
  from = without(from, [](const Candidate& candidate) { return candidate.weight == 0; });
  // −ln q, but for ln Σ weights, which all of them and their expectation have in common.
  const auto information = [largest, scale](const Candidate& candidate) {
    return static_cast<double>(largest - candidate.logit) * static_cast<double>(scale);
  };
  double entropy = 0;
  for (const Candidate& candidate : from) {
    entropy += static_cast<double>(candidate.weight) / total * information(candidate);
  }
  for (Candidate& candidate : from) {
    candidate.distance = static_cast<float>(std::fabs(information(candidate) - entropy));
  }
  return keep_mass(from, p * total, [](const Candidate& a, const Candidate& b) {
    return a.distance != b.distance ? a.distance < b.distance : likelier(a, b);
  });
}

std::span<Candidate> drop_top_choices(std::span<Candidate> from, double threshold) {
  const double least = threshold * total_weight(from);
  const auto is_top = [least](const Candidate& candidate) {
    return static_cast<double>(candidate.weight) >= least;
  };
  const Candidate* last = nullptr;
  for (const Candidate& candidate : from) {
    if (is_top(candidate) && (last == nullptr || likelier(*last, candidate))) last = &candidate;
  }
  if (last == nullptr) return from;
  const std::uint32_t kept = last->id;
  return without(
      from, [&](const Candidate& candidate) { return is_top(candidate) && candidate.id != kept; });
}

}  // namespace drafthouse
