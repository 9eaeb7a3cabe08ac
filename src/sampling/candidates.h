#pragma once

#include <cstdint>
#include <span>

namespace drafthouse {

// An id that may be drawn.
struct Candidate {
  float logit = 0;
  float weight = 0;  // exp((logit − largest logit) ÷ temperature): its probability, up to a factor
  std::uint32_t id = 0;
  float distance = 0;  // of keep_typical
};

// Falling logit, rising id among equals.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Each keeps some of the candidates, in any order, at the beginning of the span, and returns those.
// At least one is kept. Weights must be known but for keep_top_k.

std::span<Candidate> keep_top_k(std::span<Candidate> from, std::uint32_t k);
// The likeliest that have p of `total` together.
std::span<Candidate> keep_top_p(std::span<Candidate> from, double p, double total);
// Those with a weight of at least p; the likeliest has weight 1.
std::span<Candidate> keep_min_p(std::span<Candidate> from, float p);
// Locally typical sampling (Meister et al. 2023): those whose information −ln q is nearest to its
// expectation, until they have probability p together; q is among `from`. `largest` and `scale` are
// what the weights were made with.
std::span<Candidate> keep_typical(std::span<Candidate> from, double p, float largest, float scale);
// Without all of probability >= threshold but the least likely of these.
std::span<Candidate> drop_top_choices(std::span<Candidate> from, double threshold);

double total_weight(std::span<const Candidate> from);

}  // namespace drafthouse
